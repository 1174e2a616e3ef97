/* Makes system calls fail on command, for tests that must see what the store does then.
 * Preloaded into a child process. FAIL_IO_CONTROL names a file of 64-bit words, five for each call below:
 *   [0] errno to give (0: pass on)   [1] calls to let through first   [2] calls seen   [3] calls made to fail
 *   [4] milliseconds that each call takes longer
 * A test maps the same file and writes it while the process runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { MSYNC, FDATASYNC, FSYNC, FALLOCATE, FTRUNCATE, PWRITE, OPEN, UNLINK, RENAME, MKDIR };

static volatile int64_t *control;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("FAIL_IO_CONTROL");
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        control = at;
    close(fd);
}

static int chosen(int call) {
    if (!control)
        return 0;
    volatile int64_t *word = control + 5 * call;
    __atomic_add_fetch((int64_t *)word + 2, 1, __ATOMIC_SEQ_CST);
    if (word[4] > 0)
        usleep((useconds_t)(1000 * word[4]));
    if (word[0] == 0)
        return 0;
    if (word[1] > 0 && __atomic_sub_fetch((int64_t *)word + 1, 1, __ATOMIC_SEQ_CST) >= 0)
        return 0;
    __atomic_add_fetch((int64_t *)word + 3, 1, __ATOMIC_SEQ_CST);
    return (int)word[0];
}

#define FAIL_OR(call, ...)                                                                                    \
    int number = chosen(call);                                                                                \
    if (number) {                                                                                             \
        errno = number;                                                                                       \
        return -1;                                                                                            \
    }                                                                                                         \
    __VA_ARGS__

int msync(void *address, size_t length, int flags) {
    static int (*next)(void *, size_t, int);
    FAIL_OR(MSYNC, if (!next) next = dlsym(RTLD_NEXT, "msync"); return next(address, length, flags);)
}

int fdatasync(int fd) {
    static int (*next)(int);
    FAIL_OR(FDATASYNC, if (!next) next = dlsym(RTLD_NEXT, "fdatasync"); return next(fd);)
}

int fsync(int fd) {
    static int (*next)(int);
    FAIL_OR(FSYNC, if (!next) next = dlsym(RTLD_NEXT, "fsync"); return next(fd);)
}

int rename(const char *from, const char *to) {
    static int (*next)(const char *, const char *);
    FAIL_OR(RENAME, if (!next) next = dlsym(RTLD_NEXT, "rename"); return next(from, to);)
}

int mkdir(const char *path, mode_t mode) {
    static int (*next)(const char *, mode_t);
    FAIL_OR(MKDIR, if (!next) next = dlsym(RTLD_NEXT, "mkdir"); return next(path, mode);)
}

int posix_fallocate(int fd, off_t offset, off_t length) {
    static int (*next)(int, off_t, off_t);
    int number = chosen(FALLOCATE);
    if (number)
        return number;
    if (!next)
        next = dlsym(RTLD_NEXT, "posix_fallocate");
    return next(fd, offset, length);
}

int posix_fallocate64(int fd, off_t offset, off_t length) { return posix_fallocate(fd, offset, length); }

int ftruncate(int fd, off_t length) {
    static int (*next)(int, off_t);
    FAIL_OR(FTRUNCATE, if (!next) next = dlsym(RTLD_NEXT, "ftruncate"); return next(fd, length);)
}

int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    static ssize_t (*next)(int, const void *, size_t, off_t);
    FAIL_OR(PWRITE, if (!next) next = dlsym(RTLD_NEXT, "pwrite"); return next(fd, data, length, offset);)
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) { return pwrite(fd, data, length, offset); }

/* Of opens and removals those of files whose names are offsets: a digit comes last. */
static int is_offset(const char *path) {
    size_t length = strlen(path);
    return length > 0 && path[length - 1] >= '0' && path[length - 1] <= '9' && strncmp(path, "/proc", 5) != 0;
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    int number = is_offset(path) ? chosen(OPEN) : 0;
    if (number) {
        errno = number;
        return -1;
    }
    if (!next)
        next = dlsym(RTLD_NEXT, "open64");
    return next(path, flags, mode);
}

int unlink(const char *path) {
    static int (*next)(const char *);
    int number = is_offset(path) ? chosen(UNLINK) : 0;
    if (number) {
        errno = number;
        return -1;
    }
    if (!next)
        next = dlsym(RTLD_NEXT, "unlink");
    return next(path);
}
