/* What differs between the systems that PyLedger runs on, Linux and macOS; no other file of src/_core has
   code for one of them only. A function that can fail returns 0 or an errno, if nothing else is stated.

   The side for macOS is compiled and linked by tools/check_macos.py. It has never run. */
#ifndef PYLEDGER_PLATFORM_H
#define PYLEDGER_PLATFORM_H

#if !(defined(__linux__) || defined(__APPLE__)) || __SIZEOF_POINTER__ != 8 \
    || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pyledger supports Linux and macOS on 64-bit little-endian processors"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/store_file.h"

/* What an event loop watches: `event_fd` is readable from notify_loop until clear_event. Both descriptors
   are -1 while it is closed. */
typedef struct {
    int event_fd;
    int notify_fd;
} loop_event;

#ifdef __linux__

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- space and durability of files --------------------------------------------------------------- */

/* Allocates the blocks of a range, and lets the file reach to its end. */
static inline int allocate_range(int fd, int64_t begin, int64_t end) {
    int result;
    do
        result = posix_fallocate(fd, begin, end - begin);
    while (result == EINTR);
    return result;
}

/* Sets the size of a new file and allocates its first blocks. */
static inline int size_new_file(int fd, int64_t size_bytes, int64_t allocated_bytes) {
    return ftruncate(fd, size_bytes) == 0 ? allocate_range(fd, 0, allocated_bytes) : errno;
}

/* Makes content and size durable. */
static inline int sync_data(int fd) { return fdatasync(fd) == 0 ? 0 : errno; }

/* Makes the names in an open folder durable. */
static inline int sync_names(int fd) { return fsync(fd) == 0 ? 0 : errno; }

/* Makes durable what was written through a mapping of the file at `path`. */
static inline int sync_mapping(void *address, size_t length, const char *path) {
    (void)path;
    return msync(address, length, MS_SYNC) == 0 ? 0 : errno;
}

/* Makes all files of the file system of an open file durable. */
static inline int sync_file_system_of(int fd) { return syncfs(fd) == 0 ? 0 : errno; }

/* Lets the kernel begin to write a range to the disk. */
static inline void start_write_back(int fd, int64_t position, int64_t length) {
    sync_file_range(fd, position, length, SYNC_FILE_RANGE_WRITE);
}

/* Where data begins, and where it ends, at or after a position; -1 with an errno: ENXIO if there is none. */
static inline int64_t find_data(int fd, int64_t position) { return lseek(fd, position, SEEK_DATA); }
static inline int64_t find_hole(int fd, int64_t position) { return lseek(fd, position, SEEK_HOLE); }

/* A new file without a name in a folder; below 0 where there are no such files. */
static inline int open_nameless(const char *folder) {
    return open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0644);
}

/* Gives a nameless file its name, and no other file's. */
static inline int give_name(int fd, const char *path) {
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* ---- memory -------------------------------------------------------------------------------------- */

/* Faults pages in for writing. Older kernels cannot do so ahead; they do it on first touch. */
static inline int populate_pages(void *address, size_t length) {
    return madvise(address, length, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
}

/* Drops page-table entries of a shared mapping of a file; the page cache keeps the bytes. */
static inline void unmap_pages(void *address, size_t length) { madvise(address, length, MADV_DONTNEED); }

/* Frees pages of private memory. */
static inline void free_pages(void *address, size_t length) { madvise(address, length, MADV_DONTNEED); }

/* Private memory gets small pages only, */
static inline void keep_pages_small(void *address, size_t length) {
    madvise(address, length, MADV_NOHUGEPAGE);
}

/* but for the one that is made here. */
static inline void make_huge_page(void *address, size_t length) {
    if (madvise(address, length, MADV_HUGEPAGE) == 0) {
        madvise(address, length, MADV_POPULATE_WRITE);
        madvise(address, length, MADV_NOHUGEPAGE);
    }
}

/* Lets the heap keep what is freed, up to these bytes; whether the C library has such limits. */
static inline int keep_freed(int kept_bytes, int mapped_bytes) {
#ifdef M_TRIM_THRESHOLD
    return mallopt(M_TRIM_THRESHOLD, kept_bytes) && mallopt(M_MMAP_THRESHOLD, mapped_bytes);
#else
    (void)kept_bytes;
    (void)mapped_bytes;
    return 0;
#endif
}

/* Whether an instruction caused a signal, and not a process that sent it. */
static inline int is_fault(const siginfo_t *facts) { return facts->si_code > 0; }

/* ---- clocks and threads -------------------------------------------------------------------------- */

/* The clock of Python's time.monotonic. */
static inline int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A signal for the process interrupts its first thread, where Python runs the handlers. */
static inline int is_first_thread(void) { return syscall(SYS_gettid) == getpid(); }

/* Sleeps while *word is `expected`, until the deadline (monotonic; negative: none). May return early. */
static inline int futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns) {
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                          deadline_ns < 0 ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    return result == 0 ? 0 : errno;
}

static inline void futex_wake_all(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Whether all threads of this process can be made to fence, for the light fence of interpreter threads. */
static inline int register_fences(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static inline int fence_all_threads(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* ---- waking an event loop ------------------------------------------------------------------------ */

static inline int open_event(loop_event *event) {
    event->event_fd = event->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return event->event_fd >= 0 ? 0 : errno;
}

static inline void notify_loop(const loop_event *event) {
    const uint64_t one = 1;
    /* It fails when the count is at its limit: the loop has then been notified. */
    if (write(event->notify_fd, &one, sizeof(one)) < 0)
        return;
}

static inline void clear_event(const loop_event *event) {
    uint64_t count;
    if (read(event->event_fd, &count, sizeof(count)) < 0)
        return;
}

static inline void close_event(loop_event *event) {
    if (event->event_fd >= 0)
        close(event->event_fd);
    event->event_fd = event->notify_fd = -1;
}

#else /* macOS */

/* What newer kernels and headers know; older ones never raise SIGPIPE in Python, which ignores it. */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

/* ---- space and durability of files --------------------------------------------------------------- */

/* Blocks are counted from the start of the file, so holes that a copy has made stay holes: a full disk is
   then an error of the flush. A file system without preallocation is an error here (ENOTSUP). */
static inline int allocate_range(int fd, int64_t begin, int64_t end) {
    struct stat facts;
    fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, 0, 0};
    (void)begin;
    if (fstat(fd, &facts) != 0)
        return errno;
    wanted.fst_length = end - (int64_t)facts.st_blocks * 512;
    if (wanted.fst_length > 0 && fcntl(fd, F_PREALLOCATE, &wanted) != 0)
        return errno;
    return facts.st_size >= end || ftruncate(fd, end) == 0 ? 0 : errno;
}

/* All of its blocks, and before it has its size: blocks are allocated beyond the end of a file. */
static inline int size_new_file(int fd, int64_t size_bytes, int64_t allocated_bytes) {
    (void)allocated_bytes;
    return allocate_range(fd, 0, size_bytes);
}

/* fsync leaves the bytes in the cache of the drive. Not every file system can do better. */
static inline int sync_data(int fd) {
    if (fcntl(fd, F_FULLFSYNC) == 0)
        return 0;
    if (errno != ENOTSUP && errno != ENOTTY && errno != EINVAL)
        return errno;
    return fsync(fd) == 0 ? 0 : errno;
}

static inline int sync_names(int fd) { return sync_data(fd); }

static inline int sync_mapping(void *address, size_t length, const char *path) {
    int fd, failed;
    if (msync(address, length, MS_SYNC) != 0)
        return errno;
    fd = open_regular(path, O_RDONLY);
    if (fd < 0)
        return errno;
    failed = sync_data(fd);
    close(fd);
    return failed;
}

static inline int sync_file_system_of(int fd) {
    return fsync_volume_np(fd, SYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT) == 0 ? 0 : errno;
}

static inline void start_write_back(int fd, int64_t position, int64_t length) {
    (void)fd;
    (void)position;
    (void)length;
}

/* APFS reports holes where data is that has not been written back: here a file has none. */
static inline int64_t find_hole(int fd, int64_t position) {
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return -1;
    if (position < facts.st_size)
        return facts.st_size;
    errno = ENXIO;
    return -1;
}

static inline int64_t find_data(int fd, int64_t position) {
    return find_hole(fd, position) < 0 ? -1 : position;
}

static inline int open_nameless(const char *folder) {
    (void)folder;
    return -1;
}

static inline int give_name(int fd, const char *path) {
    (void)fd;
    (void)path;
    return ENOTSUP;
}

/* ---- memory -------------------------------------------------------------------------------------- */

static inline int populate_pages(void *address, size_t length) {
    return madvise(address, length, MADV_WILLNEED) == 0 ? 0 : errno;
}

static inline void unmap_pages(void *address, size_t length) {
    (void)address;
    (void)length;
}

/* madvise would keep the bytes. */
static inline void free_pages(void *address, size_t length) {
    mmap(address, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static inline void keep_pages_small(void *address, size_t length) {
    (void)address;
    (void)length;
}

static inline void make_huge_page(void *address, size_t length) {
    (void)address;
    (void)length;
}

static inline int keep_freed(int kept_bytes, int mapped_bytes) {
    (void)kept_bytes;
    (void)mapped_bytes;
    return 0;
}

static inline int is_fault(const siginfo_t *facts) { return facts->si_code > 0 && facts->si_code < SI_USER; }

/* ---- clocks and threads -------------------------------------------------------------------------- */

static inline int64_t monotonic_ns(void) { return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW); }

static inline int is_first_thread(void) { return pthread_main_np(); }

/* The system's own sleep on a word is not public before macOS 14.4. Threads that sleep on different words may
   share a slot and wake each other: they check their word again. */
enum { SLEEP_SLOTS = 64 };
typedef struct {
    pthread_mutex_t guard;
    pthread_cond_t changed;
} sleep_slot;
static sleep_slot sleep_slots[SLEEP_SLOTS];

static void make_sleep_slots(void) {
    for (int i = 0; i < SLEEP_SLOTS; i++) {
        pthread_mutex_init(&sleep_slots[i].guard, NULL);
        pthread_cond_init(&sleep_slots[i].changed, NULL);
    }
}

/* A child of a fork has one thread, which does not sleep. */
__attribute__((constructor)) static void prepare_sleep(void) {
    make_sleep_slots();
    pthread_atfork(NULL, NULL, make_sleep_slots);
}

static inline sleep_slot *sleep_slot_of(const uint32_t *word) {
    return &sleep_slots[((uintptr_t)word >> 4) % SLEEP_SLOTS];
}

static inline int futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns) {
    sleep_slot *slot = sleep_slot_of(word);
    int result = 0;
    pthread_mutex_lock(&slot->guard);
    while (result == 0 && __atomic_load_n(word, __ATOMIC_SEQ_CST) == expected) {
        if (deadline_ns < 0) {
            result = pthread_cond_wait(&slot->changed, &slot->guard);
        } else {
            const int64_t left_ns = deadline_ns - monotonic_ns();
            const struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
            result = left_ns <= 0 ? ETIMEDOUT
                                  : pthread_cond_timedwait_relative_np(&slot->changed, &slot->guard, &left);
        }
    }
    pthread_mutex_unlock(&slot->guard);
    return result;
}

/* The word was changed before the call: who took the guard before reads that next. */
static inline void futex_wake_all(uint32_t *word) {
    sleep_slot *slot = sleep_slot_of(word);
    pthread_mutex_lock(&slot->guard);
    pthread_cond_broadcast(&slot->changed);
    pthread_mutex_unlock(&slot->guard);
}

static inline int register_fences(void) { return 0; }
static inline int fence_all_threads(void) { return 0; }

/* ---- waking an event loop ------------------------------------------------------------------------ */

static inline void close_event(loop_event *event) {
    if (event->event_fd >= 0) {
        close(event->event_fd);
        close(event->notify_fd);
    }
    event->event_fd = event->notify_fd = -1;
}

static inline int open_event(loop_event *event) {
    int ends[2];
    event->event_fd = event->notify_fd = -1;
    if (pipe(ends) != 0)
        return errno;
    event->event_fd = ends[0];
    event->notify_fd = ends[1];
    for (int i = 0; i < 2; i++)
        if (fcntl(ends[i], F_SETFD, FD_CLOEXEC) != 0 || fcntl(ends[i], F_SETFL, O_NONBLOCK) != 0) {
            const int failed = errno;
            close_event(event);
            return failed;
        }
    return 0;
}

static inline void notify_loop(const loop_event *event) {
    /* It fails when the pipe is full: the loop has then been notified. */
    if (write(event->notify_fd, "", 1) < 0)
        return;
}

static inline void clear_event(const loop_event *event) {
    char dropped[256];
    while (read(event->event_fd, dropped, sizeof(dropped)) == (ssize_t)sizeof(dropped))
        ;
}

#endif

/* The slow side fences with a system call, so that the fast side need not fence at all. If the kernel does
   not support it, both sides fence. */
static int light_fence_is_heavy = 1;

static inline void prepare_fences(void) { light_fence_is_heavy = !register_fences(); }

static inline void light_fence(void) {
    if (light_fence_is_heavy)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
        __asm__ __volatile__("" ::: "memory");
}

static inline void heavy_fence(void) {
    if (light_fence_is_heavy || !fence_all_threads())
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
