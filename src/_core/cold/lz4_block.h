/* LZ4 block decoding and xxHash-32, as the LZ4 frame format uses them. Pure functions over memory.

   The input may be anything: no byte is read outside it, none written outside the output. Sequences are
   copied 16 bytes at a time while the output has space for a copy that runs past its end, then byte by byte.

   Source: lz4_Block_format.md and xxhash_spec.md of their projects. */
#ifndef PYLEDGER_LZ4_BLOCK_H
#define PYLEDGER_LZ4_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/little_endian.h"

/* ---- xxHash-32, seed 0 --------------------------------------------------------------------------- */

#define XXH_PRIME_1 2654435761u
#define XXH_PRIME_2 2246822519u
#define XXH_PRIME_3 3266489917u
#define XXH_PRIME_4 668265263u
#define XXH_PRIME_5 374761393u

static inline uint32_t rotate_left(uint32_t value, int bits) {
    return value << bits | value >> (32 - bits);
}

static inline uint32_t xxh32_round(uint32_t lane, uint32_t input) {
    return rotate_left(lane + input * XXH_PRIME_2, 13) * XXH_PRIME_1;
}

static uint32_t xxh32(const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    uint32_t hash = XXH_PRIME_5;
    if (n >= 16) {
        uint32_t a = XXH_PRIME_1 + XXH_PRIME_2, b = XXH_PRIME_2, c = 0, d = 0u - XXH_PRIME_1;
        for (; end - p >= 16; p += 16) {
            a = xxh32_round(a, load_le32(p));
            b = xxh32_round(b, load_le32(p + 4));
            c = xxh32_round(c, load_le32(p + 8));
            d = xxh32_round(d, load_le32(p + 12));
        }
        hash = rotate_left(a, 1) + rotate_left(b, 7) + rotate_left(c, 12) + rotate_left(d, 18);
    }
    hash += (uint32_t)n;
    for (; end - p >= 4; p += 4)
        hash = rotate_left(hash + load_le32(p) * XXH_PRIME_3, 17) * XXH_PRIME_4;
    for (; p < end; p++)
        hash = rotate_left(hash + *p * XXH_PRIME_5, 11) * XXH_PRIME_1;
    hash = (hash ^ hash >> 15) * XXH_PRIME_2;
    hash = (hash ^ hash >> 13) * XXH_PRIME_3;
    return hash ^ hash >> 16;
}

/* ---- LZ4 ----------------------------------------------------------------------------------------- */

enum { LZ4_MATCH_MIN = 4, LZ4_COPY = 16 };

/* The rest of a length of 15 and more; NULL when the input ends within it. */
static inline const uint8_t *lz4_length(const uint8_t *in, const uint8_t *in_end, size_t *length) {
    uint8_t more;
    do {
        if (in == in_end)
            return NULL;
        more = *in++;
        *length += more;
    } while (more == 255);
    return in;
}

/* Copies a match that may overlap its own output. `room` bytes may be written from `out` on. */
static inline void lz4_copy_match(uint8_t *out, size_t distance, size_t length, size_t room) {
    const uint8_t *from = out - distance;
    uint8_t *end = out + length;
    ASSERT(distance > 0 && length <= room);
    if (room - length < LZ4_COPY) {
        while (out < end)
            *out++ = *from++;
        return;
    }
    if (distance < LZ4_COPY) {
        /* Write the pattern until it is so long that whole copies see only what was written before. */
        size_t period = distance;
        uint8_t *start = out;
        while (period < LZ4_COPY)
            period += distance;
        for (size_t i = 0; i < LZ4_COPY; i++)
            start[i] = from[i];
        if (length <= LZ4_COPY)
            return;
        /* `period` is a multiple of the distance, so bytes that far back are the same pattern. */
        out += LZ4_COPY;
        from = out - period;
    }
    do {
        memcpy(out, from, LZ4_COPY);
        out += LZ4_COPY;
        from += LZ4_COPY;
    } while (out < end);
}

/* Decodes one block to exactly `out_size` bytes. 0, or -1 when the input is no such block. */
static int lz4_decode(const uint8_t *in, size_t in_size, uint8_t *const out_start, size_t out_size) {
    const uint8_t *const in_end = in + in_size;
    uint8_t *out = out_start;
    uint8_t *const out_end = out + out_size;
    while (in < in_end) {
        const uint8_t token = *in++;
        size_t length = token >> 4;
        size_t distance;
        ASSERT(out <= out_end);
        if (length == 15 && (in = lz4_length(in, in_end, &length)) == NULL)
            return -1;
        if (length > (size_t)(in_end - in) || length > (size_t)(out_end - out))
            return -1;
        if ((size_t)(in_end - in) - length >= LZ4_COPY && (size_t)(out_end - out) - length >= LZ4_COPY) {
            uint8_t *const end = out + length;
            const uint8_t *from = in;
            do {
                memcpy(out, from, LZ4_COPY);
                out += LZ4_COPY;
                from += LZ4_COPY;
            } while (out < end);
            out = end;
        } else {
            memcpy(out, in, length);
            out += length;
        }
        in += length;
        if (in == in_end) /* the last sequence is literals alone */
            return out == out_end && (token & 15) == 0 ? 0 : -1;
        if (in_end - in < 2)
            return -1;
        distance = (size_t)in[0] | (size_t)in[1] << 8;
        in += 2;
        length = token & 15;
        if (length == 15 && (in = lz4_length(in, in_end, &length)) == NULL)
            return -1;
        length += LZ4_MATCH_MIN;
        if (distance == 0 || distance > (size_t)(out - out_start) || length > (size_t)(out_end - out))
            return -1;
        lz4_copy_match(out, distance, length, (size_t)(out_end - out));
        out += length;
    }
    return -1;
}

#endif
