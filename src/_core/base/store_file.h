/* Opening a file of a store by its name. It must be a regular file: opening a FIFO would wait for its other
   end for ever. A writer does not follow a symbolic link, which could make it truncate or zero a file outside
   the store. Folders may be links, and readers follow all links. */
#ifndef PYLEDGER_STORE_FILE_H
#define PYLEDGER_STORE_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A descriptor, or -1 and an errno: ELOOP of a link, ENXIO of anything else that is no regular file. */
static int open_regular(const char* path, int flags) {
    struct stat facts;
    int kept = (flags & O_ACCMODE) == O_RDONLY ? 0 : O_NOFOLLOW;
    int fd = open(path, flags | kept | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))) {
        close(fd);
        errno = ENXIO;
        fd = -1;
    }
    return fd;
}

#endif
