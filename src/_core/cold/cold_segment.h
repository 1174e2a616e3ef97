/* A cold segment: one file of the commit log in LZ4 blocks, read as if it were not compressed. Other
   fragments open one with `open_segment` and have bytes of it in place with `cold_range`.

   The file is mapped, and so is an anonymous region of the original size. A block is decompressed into that
   region when it is first needed. So a record has an address, as in any mapped file. Memory stays bounded:
   when more than `cold_budget_bytes` are decompressed, the least recently used blocks are freed.

   Invariant: a block's bytes stay in place while its state is COLD_READY. Only cold_trim takes a block out of
   that state, and never one that
     - was touched at or after the oldest entry of a thread between cold_enter and cold_leave,
     - is pinned (a message points into it), or whose segment is held (a buffer over it is exported).
   Each of these is published before the state is read, and cold_trim publishes COLD_DROPPING before it reads
   them again, all in one total order: one of the two sees the other.

   No length of the file is trusted: positions and digest are checked when a block is decompressed. A damaged
   block reads as 0xFF, where no record can start.

   Making pages costs more than decoding. A walk that has passed COLD_WALK_BYTES gets the pages of the next
   COLD_HUGE bytes as one huge page. Freeing a block also frees the part of its last huge page that no block
   was decompressed to. So a walk holds at most one huge page beyond the budget, and none once all blocks of
   that page are freed.

   Layout: docs/formats/cold_segment.md. */
#ifndef PYLEDGER_COLD_SEGMENT_H
#define PYLEDGER_COLD_SEGMENT_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "log/file_mapping.h"
#include "base/checks.h"
#include "cold/lz4_block.h"
#include "base/page.h"
#include "base/platform.h"

#define COLD_MAGIC "PYLCOLD1"

enum { COLD_EMPTY, COLD_BUSY, COLD_READY, COLD_DROPPING };
enum {
    COLD_ENTRY_BYTES = 40,
    COLD_TRAILER_BYTES = 64,
    COLD_HUGE = 2 << 20,
    COLD_WALK_BYTES = 1 << 20,
    COLD_BLOCK_BYTES_MAX = 4 << 20,
    COLD_THREADS_MAX = 256,
    COLD_RAW_BLOCK = 1 << 31, /* in the length of a block: stored without compression */
};

typedef struct {
    int64_t stamp; /* epoch of the last touch */
    int32_t begin; /* when it was decompressed; equal to `end` when the index is damaged */
    int32_t end;
    int32_t pins;
    uint8_t state;
    uint8_t damaged;
} cold_block;

typedef struct cold_segment {
    file_mapping *mapping;
    const uint8_t *file_bytes;
    int64_t file_size;
    int64_t blocks_end; /* of the LZ4 blocks in the file */
    const uint8_t *entries;
    int64_t block_count;
    uint8_t *base; /* decompressed; the table of blocks follows it */
    int64_t size_bytes;
    int64_t region_bytes;
    cold_block *table;
    int64_t last_block; /* found last; often wanted next, too */
    int64_t ready_blocks;
    int64_t holds;
    struct cold_segment *next;
    struct cold_segment **link;
} cold_segment;

static pthread_mutex_t cold_guard = PTHREAD_MUTEX_INITIALIZER; /* the list of segments, and trimming */
static cold_segment *cold_segments;
static int64_t cold_epoch = 1;
static int64_t cold_decompressed_bytes; /* in memory now */
static int64_t cold_blocks_decompressed; /* ever */
static int64_t cold_budget_bytes = 128 << 20;
static int64_t cold_entries_of_threads[COLD_THREADS_MAX]; /* epoch at cold_enter; 0: free */
static int64_t cold_unlisted; /* threads that found no free entry: nothing is freed meanwhile */
static __thread int cold_depth;
static __thread int cold_slot;

#define COLD_LOAD(where) __atomic_load_n(where, __ATOMIC_SEQ_CST)
#define COLD_STORE(where, value) __atomic_store_n(where, value, __ATOMIC_SEQ_CST)
#define COLD_ADD(where, value) __atomic_add_fetch(where, value, __ATOMIC_SEQ_CST)

static inline int cold_take(uint8_t *state, uint8_t from, uint8_t to) {
    return __atomic_compare_exchange_n(state, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* ---- the index ----------------------------------------------------------------------------------- */

static inline int64_t cold_start(const cold_segment *s, int64_t block) {
    return block >= s->block_count ? s->size_bytes
                                   : (int64_t)load_le32(s->entries + block * COLD_ENTRY_BYTES + 8);
}

/* Whether a block lies in the segment. The index is read from the mapping and may change meanwhile: a file
   that is truncated reads as zeroes. */
static inline int cold_fits(const cold_segment *s, int64_t begin, int64_t end) {
    return 0 <= begin && begin < end && end <= s->size_bytes && end - begin <= COLD_BLOCK_BYTES_MAX;
}

/* The first position at or after another one where a huge page can begin. */
static inline int64_t cold_next_huge(const cold_segment *s, int64_t position) {
    return position + (int64_t)(-(uintptr_t)(s->base + position) & (COLD_HUGE - 1));
}

/* The block that holds a position; -1 when a damaged index names none. */
static int64_t cold_find(cold_segment *s, int64_t position) {
    int64_t low = 0, high = s->block_count - 1;
    int64_t block = __atomic_load_n(&s->last_block, __ATOMIC_RELAXED);
    if (cold_start(s, block) <= position && position < cold_start(s, block + 1))
        return block;
    while (low < high) {
        block = (low + high + 1) >> 1;
        if (cold_start(s, block) <= position)
            low = block;
        else
            high = block - 1;
    }
    if (cold_start(s, low) > position || position >= cold_start(s, low + 1))
        return -1;
    __atomic_store_n(&s->last_block, low, __ATOMIC_RELAXED);
    return low;
}

/* ---- freeing ------------------------------------------------------------------------------------- */

static void cold_drop(cold_segment *s, int64_t b, int64_t cutoff) {
    cold_block *block = &s->table[b];
    const int64_t begin = block->begin, end = block->end;
    int64_t first = page_ceiling(begin), last = page_ceiling(end);
    const int64_t ahead = cold_next_huge(s, end);
    int64_t next = b + 1;
    int left = 0;
    if (begin == end || !cold_take(&block->state, COLD_READY, COLD_DROPPING))
        return;
    if (COLD_LOAD(&block->stamp) >= cutoff || COLD_LOAD(&block->pins) || COLD_LOAD(&s->holds)) {
        COLD_STORE(&block->state, COLD_READY);
        return;
    }
    /* The index of a truncated file may be wrong about neighbours: free only this block's own pages. */
    if (is_damaged(s->mapping, 0, INT64_MAX)) {
        last = page_floor(end);
        goto drop;
    }
    /* A page that is shared with a neighbour is freed when both are empty. */
    if (first > begin && b > 0 && cold_start(s, b - 1) <= first - page_bytes)
        left = cold_take(&s->table[b - 1].state, COLD_EMPTY, COLD_DROPPING);
    if (left)
        first -= page_bytes;
    if (ahead <= s->size_bytes)
        last = ahead;
    while (next < s->block_count && cold_start(s, next) < last
               && cold_take(&s->table[next].state, COLD_EMPTY, COLD_DROPPING))
        next++;
    if (next < s->block_count && cold_start(s, next) < last)
        last = page_floor(cold_start(s, next));
drop:
    if (first < last)
        free_pages(s->base + first, (size_t)(last - first));
    if (left)
        COLD_STORE(&s->table[b - 1].state, COLD_EMPTY);
    while (--next > b)
        COLD_STORE(&s->table[next].state, COLD_EMPTY);
    COLD_STORE(&block->state, COLD_EMPTY);
    COLD_ADD(&s->ready_blocks, -1);
    COLD_ADD(&cold_decompressed_bytes, begin - end);
}

/* Frees every block that was last touched before `cutoff`; the epoch of the oldest that is left. */
static int64_t cold_drop_before(int64_t cutoff) {
    int64_t oldest = INT64_MAX;
    for (cold_segment *s = cold_segments; s != NULL; s = s->next) {
        if (COLD_LOAD(&s->ready_blocks) == 0)
            continue;
        for (int64_t b = 0; b < s->block_count; b++) {
            if (COLD_LOAD(&s->table[b].state) != COLD_READY)
                continue;
            if (COLD_LOAD(&s->table[b].stamp) < cutoff)
                cold_drop(s, b, cutoff);
            if (COLD_LOAD(&s->table[b].state) == COLD_READY && COLD_LOAD(&s->table[b].stamp) < oldest)
                oldest = COLD_LOAD(&s->table[b].stamp);
        }
    }
    return oldest;
}

/* Frees the least recently used blocks, down to half the budget; nothing while another thread does so. */
static void cold_trim(void) {
    int64_t limit, low, cutoff;
    if (pthread_mutex_trylock(&cold_guard) != 0)
        return;
    limit = COLD_ADD(&cold_epoch, 1);
    for (int i = 0; i < COLD_THREADS_MAX; i++) {
        int64_t entry = COLD_LOAD(&cold_entries_of_threads[i]);
        if (entry != 0 && entry < limit)
            limit = entry;
    }
    low = COLD_LOAD(&cold_unlisted) ? limit : cold_drop_before(0);
    while (low < limit && COLD_LOAD(&cold_decompressed_bytes) > cold_budget_bytes / 2) {
        cutoff = low + (limit - low + 1) / 2;
        cold_drop_before(cutoff);
        low = cutoff;
    }
    pthread_mutex_unlock(&cold_guard);
}

/* ---- threads that read --------------------------------------------------------------------------- */

/* The calling thread keeps no address of a segment from before. Cheap while within the budget. */
static inline void cold_pause(void) {
    const int64_t used = __atomic_load_n(&cold_decompressed_bytes, __ATOMIC_RELAXED);
    if (__builtin_expect(used > cold_budget_bytes, 0)) {
        if (cold_depth == 1 && cold_slot >= 0)
            COLD_STORE(&cold_entries_of_threads[cold_slot], COLD_ADD(&cold_epoch, 1));
        cold_trim();
    }
}

/* What this thread finds from here on stays in place until cold_leave or its next cold_pause. */
static inline void cold_enter(void) {
    int64_t epoch;
    if (cold_depth++ > 0)
        return;
    cold_slot = -1;
    if (__atomic_load_n(&cold_segments, __ATOMIC_RELAXED) == NULL)
        return;
    epoch = COLD_ADD(&cold_epoch, 1);
    for (int i = 0; i < COLD_THREADS_MAX; i++) {
        int64_t free_slot = 0;
        if (__atomic_compare_exchange_n(&cold_entries_of_threads[i], &free_slot, epoch, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            cold_slot = i;
            break;
        }
    }
    if (cold_slot < 0) {
        cold_slot = -2;
        COLD_ADD(&cold_unlisted, 1);
    }
    cold_pause();
}

static inline void cold_leave(void) {
    if (--cold_depth > 0 || cold_slot == -1)
        return;
    if (cold_slot == -2)
        COLD_ADD(&cold_unlisted, -1);
    else
        COLD_STORE(&cold_entries_of_threads[cold_slot], 0);
}

/* ---- decompressing ------------------------------------------------------------------------------- */

/* Decompresses a block into the region. 0, or -1 when its bytes or its index entry are damaged. */
static int cold_decode(const cold_segment *s, int64_t b, int64_t begin, int64_t end) {
    const uint64_t position = load_le64(s->entries + b * COLD_ENTRY_BYTES);
    const uint8_t *in;
    uint32_t length;
    ASSERT(0 <= b && b < s->block_count && cold_fits(s, begin, end));
    if (position > (uint64_t)s->blocks_end || s->blocks_end - (int64_t)position < 8)
        return -1;
    in = s->file_bytes + position;
    length = load_le32(in) & ~(uint32_t)COLD_RAW_BLOCK;
    if ((int64_t)length > s->blocks_end - (int64_t)position - 8)
        return -1;
    if (xxh32(in + 4, length) != load_le32(in + 4 + length))
        return -1;
    if (load_le32(in) & (uint32_t)COLD_RAW_BLOCK) {
        if ((int64_t)length != end - begin)
            return -1;
        memcpy(s->base + begin, in + 4, length);
        return 0;
    }
    return lz4_decode(in + 4, length, s->base + begin, (size_t)(end - begin));
}

/* Makes the huge page that begins in a block, for a walk. Other pages of a segment stay small. */
static void cold_make_ahead(cold_segment *s, int64_t b, int64_t begin, int64_t end) {
    const int64_t huge = cold_next_huge(s, begin);
    uint8_t *page = s->base + huge;
    if (huge >= end || huge + COLD_HUGE > s->size_bytes)
        return;
    do {
        if (--b < 0 || COLD_LOAD(&s->table[b].state) != COLD_READY)
            return;
    } while (cold_start(s, b) > begin - COLD_WALK_BYTES);
    make_huge_page(page, COLD_HUGE);
}

static void cold_fill(cold_segment *s, int64_t b) {
    const int64_t begin = cold_start(s, b), end = cold_start(s, b + 1);
    const int64_t first = page_floor(begin);
    if (!cold_fits(s, begin, end)) {
        s->table[b].damaged = 1;
        s->table[b].begin = s->table[b].end = 0;
        return;
    }
    s->table[b].begin = (int32_t)begin;
    s->table[b].end = (int32_t)end;
    cold_make_ahead(s, b, begin, end);
    populate_pages(s->base + first, (size_t)(page_ceiling(end) - first));
    s->table[b].damaged = cold_decode(s, b, begin, end) != 0;
    if (s->table[b].damaged)
        memset(s->base + begin, 0xFF, (size_t)(end - begin));
    COLD_ADD(&s->ready_blocks, 1);
    COLD_ADD(&cold_decompressed_bytes, end - begin);
    COLD_ADD(&cold_blocks_decompressed, 1);
}

/* Has a block in place, and marks it as used. */
static inline void cold_touch(cold_segment *s, int64_t b) {
    cold_block *block = &s->table[b];
    const int64_t epoch = __atomic_load_n(&cold_epoch, __ATOMIC_RELAXED);
    ASSERT(0 <= b && b < s->block_count);
    if (__atomic_load_n(&block->stamp, __ATOMIC_RELAXED) < epoch)
        COLD_STORE(&block->stamp, epoch);
    while (COLD_LOAD(&block->state) != COLD_READY) {
        if (cold_take(&block->state, COLD_EMPTY, COLD_BUSY)) {
            cold_fill(s, b);
            COLD_STORE(&block->state, COLD_READY);
        } else {
            sched_yield();
        }
    }
}

/* Has the blocks of `length` bytes, at least one, from `position` in place. Bytes from there to the end of
   the last of these blocks; 0 when the index is damaged there. */
static int64_t cold_range(cold_segment *s, int64_t position, int64_t length) {
    int64_t at = position;
    do {
        int64_t b = cold_find(s, at);
        const int64_t next = cold_start(s, b + 1);
        if (b < 0 || next <= at || !cold_fits(s, cold_start(s, b), next))
            return 0;
        cold_touch(s, b);
        at = next;
    } while (at - position < length);
    return at - position;
}


static void cold_pin(cold_segment *s, int64_t position, int64_t end, int32_t by) {
    while (position < end) {
        int64_t b = cold_find(s, position);
        if (b < 0)
            return;
        COLD_ADD(&s->table[b].pins, by);
        if (cold_start(s, b + 1) <= position)
            return;
        position = cold_start(s, b + 1);
    }
}

/* ---- opening ------------------------------------------------------------------------------------- */

static void cold_link(cold_segment *s) {
    pthread_mutex_lock(&cold_guard);
    s->next = cold_segments;
    s->link = &cold_segments;
    if (s->next != NULL)
        s->next->link = &s->next;
    __atomic_store_n(&cold_segments, s, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&cold_guard);
}

/* Unmaps and frees a segment that no thread reads. */
static void cold_close(cold_segment *s) {
    pthread_mutex_lock(&cold_guard);
    *s->link = s->next;
    if (s->next != NULL)
        s->next->link = s->link;
    for (int64_t b = 0; b < s->block_count && s->ready_blocks > 0; b++) {
        if (s->table[b].state == COLD_READY && s->table[b].begin < s->table[b].end) {
            s->ready_blocks--;
            COLD_ADD(&cold_decompressed_bytes, s->table[b].begin - s->table[b].end);
        }
    }
    pthread_mutex_unlock(&cold_guard);
    munmap(s->base, (size_t)s->region_bytes);
    unmap_file(s->mapping, 0);
    free(s);
}

#endif
