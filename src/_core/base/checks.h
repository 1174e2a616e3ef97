/* ASSERT: what must hold where a length or an offset is trusted. The checked build ends the process where
   it does not; any other build does not evaluate it. It is never the check of what comes from a disk or a
   peer: that is a status or an exception, in every build. */
#ifndef PYLEDGER_CHECKS_H
#define PYLEDGER_CHECKS_H

#ifdef PYLEDGER_ASSERT
#include <stdio.h>
#include <stdlib.h>
#define ASSERT(condition)                                                                              \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "pyledger: assertion failed at %s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                                   \
        }                                                                                              \
    } while (0)
#define BUILD_KIND "debug"
#else
#define ASSERT(condition) ((void)0)
#define BUILD_KIND "release"
#endif

#endif
