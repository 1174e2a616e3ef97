/* Mappings of files whose bytes may be gone when they are read.

   If the file was truncated, or the disk cannot read a page (EIO), the instruction that touches that page
   of the mapping gets a SIGBUS, which ends the process. The handler here maps a page of zeroes instead, so
   that the instruction continues, and marks the page as damaged. Readers must check the mark of what they
   read, and raise; writers must check that of what they wrote, before they move the end of the log and before
   they report a flush. A mapping remembers one range, from the first damaged page to the last: so what lies
   outside can be read on.

   The handler is there from the first mapping on. A fault at any other address, and a signal that a process
   sent, go to the handler that was there before (faulthandler, a JVM in the same process).

   What the handler reads is never freed, and changes by atomic stores: it takes no lock.

   Where the address space has a limit (`ulimit -v`), mappings leave some of it to the heap. If files took the
   last of it, the next small allocation anywhere would fail: the interpreter, and others' native code, abort
   or crash then. A file that cannot be mapped is an error like any other (ENOMEM). */
#ifndef PYLEDGER_FILE_MAPPING_H
#define PYLEDGER_FILE_MAPPING_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/page.h"
#include "base/platform.h"

typedef struct file_mapping {
    uint8_t *base; /* NULL: none */
    int64_t length;
    int64_t damaged_begin, damaged_end; /* all pages that could not be read are in here; end 0: none */
    struct file_mapping *next_free;
} file_mapping;

enum { MAPPINGS_OF_BLOCK = 512, HEAP_ROOM_BYTES = 256 << 20, HEAP_SHARE = 8 };

typedef struct mapping_block {
    file_mapping mappings[MAPPINGS_OF_BLOCK];
    struct mapping_block *next;
} mapping_block;

static pthread_mutex_t mappings_guard = PTHREAD_MUTEX_INITIALIZER; /* the free ones, and making blocks */
static mapping_block *mapping_blocks;
static file_mapping *free_mappings;
static int64_t damaged_mappings; /* of those that are mapped */
static struct sigaction sigbus_before;
static int sigbus_handled;

static file_mapping *mapping_at(uintptr_t address) {
    mapping_block *block = __atomic_load_n(&mapping_blocks, __ATOMIC_ACQUIRE);
    for (; block != NULL; block = block->next)
        for (int i = 0; i < MAPPINGS_OF_BLOCK; i++) {
            file_mapping *m = &block->mappings[i];
            const uintptr_t base = (uintptr_t)__atomic_load_n(&m->base, __ATOMIC_ACQUIRE);
            const int64_t length = __atomic_load_n(&m->length, __ATOMIC_RELAXED);
            if (base != 0 && address - base < (uintptr_t)page_ceiling(length))
                return m;
        }
    return NULL;
}

/* Marks bytes of a mapping; several threads may do so at once, and the range only grows. The count comes
   first: a reader that sees it at 0 checks no more. */
static void mark_damaged(file_mapping *m, int64_t begin, int64_t end) {
    int64_t first = __atomic_load_n(&m->damaged_begin, __ATOMIC_SEQ_CST);
    int64_t last = __atomic_load_n(&m->damaged_end, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&damaged_mappings, 1, __ATOMIC_SEQ_CST);
    while (begin < first && !__atomic_compare_exchange_n(&m->damaged_begin, &first, begin, 0,
                                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    while (end > last && !__atomic_compare_exchange_n(&m->damaged_end, &last, end, 0,
                                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    if (last != 0) /* the mapping was counted before */
        __atomic_sub_fetch(&damaged_mappings, 1, __ATOMIC_SEQ_CST);
}

static void on_sigbus(int number, siginfo_t *facts, void *context) {
    const int before = errno;
    const int fault = is_fault(facts); /* otherwise there is no address */
    file_mapping *m = fault ? mapping_at((uintptr_t)facts->si_addr) : NULL;
    if (m != NULL) {
        void *page = (void *)((uintptr_t)facts->si_addr & -(uintptr_t)page_bytes);
        /* The mark first: another thread must not read a zero without it. */
        mark_damaged(m, (uint8_t *)page - m->base, (uint8_t *)page - m->base + page_bytes);
        if (mmap(page, (size_t)page_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
            errno = before;
            return;
        }
    }
    if (sigbus_before.sa_flags & SA_SIGINFO) {
        sigbus_before.sa_sigaction(number, facts, context);
    } else if (sigbus_before.sa_handler != SIG_DFL && sigbus_before.sa_handler != SIG_IGN) {
        sigbus_before.sa_handler(number);
    } else if (fault || sigbus_before.sa_handler == SIG_DFL) {
        /* The instruction is tried again, or the signal sent again, and ends the process. */
        signal(number, SIG_DFL);
        if (!fault)
            raise(number);
    }
    errno = before;
}

/* A child of a fork has one thread, which does not hold the lock. */
static void free_guard_after_fork(void) { pthread_mutex_init(&mappings_guard, NULL); }

static int handle_sigbus(void) {
    struct sigaction action;
    if (sigbus_handled)
        return 0;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &sigbus_before) != 0 || sigaction(SIGBUS, &action, NULL) != 0)
        return -1;
    pthread_atfork(NULL, NULL, free_guard_after_fork);
    sigbus_handled = 1;
    return 0;
}

static file_mapping *take_mapping(void) {
    file_mapping *m = NULL;
    mapping_block *block;
    pthread_mutex_lock(&mappings_guard);
    if (handle_sigbus() == 0) {
        if (free_mappings == NULL && (block = calloc(1, sizeof(*block))) != NULL) {
            for (int i = 0; i < MAPPINGS_OF_BLOCK; i++) {
                block->mappings[i].next_free = free_mappings;
                free_mappings = &block->mappings[i];
            }
            block->next = mapping_blocks;
            __atomic_store_n(&mapping_blocks, block, __ATOMIC_RELEASE);
        }
        m = free_mappings;
        if (m != NULL)
            free_mappings = m->next_free;
    }
    pthread_mutex_unlock(&mappings_guard);
    return m;
}

static void give_mapping_back(file_mapping *m) {
    pthread_mutex_lock(&mappings_guard);
    m->next_free = free_mappings;
    free_mappings = m;
    pthread_mutex_unlock(&mappings_guard);
}

/* Whether a mapping of `length` leaves the heap enough address space: 256 MiB, or an eighth of the limit. */
static int leaves_heap_space(int64_t length) {
    struct rlimit limit;
    rlim_t room;
    void *probe;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 1;
    room = limit.rlim_cur / HEAP_SHARE < HEAP_ROOM_BYTES ? limit.rlim_cur / HEAP_SHARE : HEAP_ROOM_BYTES;
    probe = mmap(NULL, (size_t)length + room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED)
        return 0;
    munmap(probe, (size_t)length + room);
    return 1;
}

/* Maps the beginning of a file, shared. NULL on failure, with errno. */
static file_mapping *map_file(int fd, int64_t length, int protection) {
    file_mapping *m = leaves_heap_space(length) ? take_mapping() : NULL;
    void *address;
    int failed;
    if (m == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    address = mmap(NULL, (size_t)length, protection, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        failed = errno;
        give_mapping_back(m);
        errno = failed;
        return NULL;
    }
    m->damaged_begin = INT64_MAX;
    m->damaged_end = 0;
    __atomic_store_n(&m->length, length, __ATOMIC_RELAXED);
    __atomic_store_n(&m->base, (uint8_t *)address, __ATOMIC_RELEASE);
    return m;
}

/* The kernel locks the address space for each call: a big file must not stop all threads for long. */
static void unmap_file(file_mapping *m, int in_steps) {
    const int64_t step = in_steps ? 4 << 20 : m->length;
    uint8_t *at = m->base;
    int64_t left = m->length;
    if (m->damaged_end != 0)
        __atomic_sub_fetch(&damaged_mappings, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&m->base, NULL, __ATOMIC_RELEASE);
    for (; left > step; at += step, left -= step)
        munmap(at, (size_t)step);
    munmap(at, (size_t)left);
    give_mapping_back(m);
}

/* Reads a byte of each page of a range, so that pages that cannot be read are marked. */
static inline void touch_pages(const uint8_t *at, int64_t length) {
    const volatile uint8_t *page = at;
    for (; page < at + length; page = (const uint8_t *)page_floor((int64_t)page) + page_bytes)
        (void)*page;
}

/* Whether any byte of a range of a mapping could not be read until now. */
static inline int is_damaged(const file_mapping *m, int64_t begin, int64_t end) {
    return __atomic_load_n(&damaged_mappings, __ATOMIC_SEQ_CST) != 0 && m != NULL
           && begin < __atomic_load_n(&m->damaged_end, __ATOMIC_SEQ_CST)
           && __atomic_load_n(&m->damaged_begin, __ATOMIC_SEQ_CST) < end;
}

#endif
