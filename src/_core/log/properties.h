/* One pass over a record's properties, sixteen bytes at a step, and Java's string hash eight characters at a
   step. Both are most of what dispatch does for a record, and the pass much of what a row costs. */
#ifndef PYLEDGER_PROPERTIES_H
#define PYLEDGER_PROPERTIES_H

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PROPERTIES_INLINE static inline __attribute__((always_inline))

/* What a walk needs from the properties. Of several with one name the last wins, as in Java's map. */
typedef struct {
    int64_t delay_level;        /* 0 without */
    int64_t inner_base;         /* -1 without */
    int64_t inner_count;
    const uint8_t *tags;
    const uint8_t *unique_key;
    const uint8_t *keys;
    int32_t tags_bytes;
    int32_t unique_key_bytes;
    int32_t keys_bytes;
} RecordFacts;

/* A non-negative decimal number of at most 18 digits; `otherwise` for anything else. */
static int64_t decimal_of(const uint8_t *text, int32_t length, int64_t otherwise)
{
    int64_t value = 0;
    int32_t i;
    if (length <= 0 || length > 18)
        return otherwise;
    for (i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return otherwise;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static inline void take_fact(void *context, const uint8_t *item, int32_t split, int32_t length)
{
    RecordFacts *facts = (RecordFacts *)context;
    const uint8_t *value = item + split + 1;
    int32_t value_bytes = length - split - 1;
    switch (split) {
    case 4:
        if (memcmp(item, "TAGS", 4) == 0) {
            facts->tags = value;
            facts->tags_bytes = value_bytes;
        } else if (memcmp(item, "KEYS", 4) == 0) {
            facts->keys = value;
            facts->keys_bytes = value_bytes;
        }
        break;
    case 8:
        if (memcmp(item, "UNIQ_KEY", 8) == 0) {
            facts->unique_key = value;
            facts->unique_key_bytes = value_bytes;
        }
        break;
    case 5:
        if (memcmp(item, "DELAY", 5) == 0)
            facts->delay_level = decimal_of(value, value_bytes, 0);
        break;
    case 9:
        if (memcmp(item, "INNER_NUM", 9) == 0)
            facts->inner_count = decimal_of(value, value_bytes, -1);
        break;
    case 10:
        if (memcmp(item, "INNER_BASE", 10) == 0)
            facts->inner_base = decimal_of(value, value_bytes, -1);
        break;
    }
}

/* Called for each item with a name and a value: `split` bytes of name, then one byte, then the value. */
typedef void (*property_taker)(void *context, const uint8_t *item, int32_t split, int32_t length);

typedef struct {
    int32_t item;  /* where the item at hand starts */
    int32_t split; /* where its name ends; -1: not yet */
} property_cursor;

PROPERTIES_INLINE void step_property(property_cursor *c, const uint8_t *text, int32_t at, property_taker take,
                                     void *context)
{
    if (text[at] == 1) {
        if (c->split < 0)
            c->split = at;
    } else {
        /* Java keeps an item of at least three bytes with a name and a value. */
        if (c->split > c->item && at > c->split + 1)
            take(context, text + c->item, c->split - c->item, at - c->item);
        c->item = at + 1;
        c->split = -1;
    }
}

/* Walk over the properties; returns 0 when all of the text is ASCII. */
PROPERTIES_INLINE int each_property(const uint8_t *text, int32_t length, property_taker take, void *context)
{
    property_cursor cursor = {0, -1};
    int32_t at = 0, beyond_ascii = 0;
#if defined(__SSE2__)
    for (; length >= 16 && at < length; at += 16) {
        /* The last sixteen bytes are a block too; what of them was seen is shifted out. */
        int32_t seen = at + 16 <= length ? 0 : at + 16 - length;
        __m128i block = _mm_loadu_si128((const __m128i *)(text + at - seen));
        unsigned marks = (unsigned)_mm_movemask_epi8(_mm_or_si128(
            _mm_cmpeq_epi8(block, _mm_set1_epi8(1)), _mm_cmpeq_epi8(block, _mm_set1_epi8(2))));
        beyond_ascii |= _mm_movemask_epi8(block);
        for (marks >>= seen; marks; marks &= marks - 1)
            step_property(&cursor, text, at + __builtin_ctz(marks), take, context);
    }
#endif
    for (; at < length; at++) {
        beyond_ascii |= text[at] & 0x80;
        if (text[at] == 1 || text[at] == 2)
            step_property(&cursor, text, at, take, context);
    }
    if (cursor.split > cursor.item && length > cursor.split + 1)
        take(context, text + cursor.item, cursor.split - cursor.item, length - cursor.item);
    return beyond_ascii;
}

static inline void read_facts(const uint8_t *text, int32_t length, RecordFacts *facts)
{
    facts->delay_level = 0;
    facts->inner_base = facts->inner_count = -1;
    facts->tags = facts->unique_key = facts->keys = NULL;
    each_property(text, length, take_fact, facts);
}

/* Go on with Java's hash over leading ASCII text, eight characters at a step; returns the bytes it took. */
static inline int64_t hash_ascii(uint32_t *hash, const uint8_t *text, int64_t length)
{
    uint32_t h = *hash;
    int64_t i = 0;
    for (; i + 8 <= length; i += 8) {
        const uint8_t *t = text + i;
        uint64_t word;
        memcpy(&word, t, 8);
        if (word & 0x8080808080808080ULL)
            break;
        h = h * (uint32_t)852891037441ULL + t[0] * (uint32_t)27512614111ULL + t[1] * 887503681U
            + t[2] * 28629151U + t[3] * 923521U + t[4] * 29791U + t[5] * 961U + t[6] * 31U + t[7];
    }
    *hash = h;
    return i;
}

#endif
