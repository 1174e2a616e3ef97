/* The page size of the system, in which calls on mappings count (msync, madvise): 4 KiB, or 16 or 64 KiB on
   many arm64 systems. Upstream's rule for a flush counts in pages of 4,096 bytes everywhere: OS_PAGE_SIZE in
   layout.pxd. */
#ifndef PYLEDGER_PAGE_H
#define PYLEDGER_PAGE_H

#include <stdint.h>
#include <unistd.h>

static int64_t page_bytes;

__attribute__((constructor)) static void read_page_bytes(void) { page_bytes = sysconf(_SC_PAGESIZE); }

static inline int64_t page_floor(int64_t position) { return position & -page_bytes; }
static inline int64_t page_ceiling(int64_t position) { return (position + page_bytes - 1) & -page_bytes; }

#endif
