/* The page size of the system, which calls on mappings count in (msync, madvise, holes): 4 KiB, or 16 or 64
   KiB on many an arm64. It is asked for here and nowhere else. The rule when a flush is due is upstream's,
   and counts in pages of 4,096 bytes everywhere: PAGE_SIZE_BYTES in layout.pxd. */
#ifndef PYLEDGER_PAGE_H
#define PYLEDGER_PAGE_H

#include <stdint.h>
#include <unistd.h>

static int64_t page_bytes;

__attribute__((constructor)) static void ask_page_bytes(void) { page_bytes = sysconf(_SC_PAGESIZE); }

static inline int64_t page_floor(int64_t position) { return position & -page_bytes; }
static inline int64_t page_ceiling(int64_t position) { return (position + page_bytes - 1) & -page_bytes; }

#endif
