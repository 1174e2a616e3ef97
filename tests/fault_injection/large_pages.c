/* A kernel of 64 KiB pages, as far as mappings show it: where they lie, which addresses a call takes, and that a
   length is rounded up to whole pages. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 65536
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

long sysconf(int name) { return name == _SC_PAGESIZE ? PAGE : NEXT(sysconf)(name); }

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (at == NULL) {
        char *room = NEXT(mmap)(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED)
            return room;
        at = (void *)(((uintptr_t)room + PAGE - 1) & -PAGE);
        flags |= MAP_FIXED;
    } else if ((uintptr_t)at & (PAGE - 1)) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    return NEXT(mmap)(at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}

int msync(void *at, size_t size, int flags) {
    if ((uintptr_t)at & (PAGE - 1)) {
        errno = EINVAL;
        return -1;
    }
    return NEXT(msync)(at, size, flags);
}

int madvise(void *at, size_t size, int advice) {
    if ((uintptr_t)at & (PAGE - 1)) {
        errno = EINVAL;
        return -1;
    }
    return NEXT(madvise)(at, (size + PAGE - 1) & -(size_t)PAGE, advice);
}
