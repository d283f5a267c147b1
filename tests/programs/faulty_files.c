/* Disk faults, for LD_PRELOAD. In a process with the variables
 *   FAULTY_CALL  read, write or fsync
 *   FAULTY_NAME  part of the path of the files
 *   FAULT        short, zero, EINTR, or the number of an error
 * calls on these files transfer half of the requested bytes (short), none (zero), or fail: with EINTR every second time, with
 * another error from the second call on, or from the first for fsync. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;

static int is_faulty(const char *call, int file) {
    const char *wanted = getenv("FAULTY_CALL"), *name = getenv("FAULTY_NAME");
    char link[64], path[4096];
    if (wanted == NULL || name == NULL || strcmp(wanted, call) != 0) {
        return 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) {
        return 0;
    }
    path[length] = 0;
    return strstr(path, name) != NULL;
}

/* Returns the number of bytes to transfer instead of count, or -1 with errno set. */
static ssize_t faulty(size_t count, int is_from_first) {
    const char *fault = getenv("FAULT");
    int call = atomic_fetch_add(&calls, 1);
    if (strcmp(fault, "short") == 0) {
        return (ssize_t)(count + 1) / 2;
    }
    if (strcmp(fault, "zero") == 0) {
        return call == 0 && !is_from_first ? (ssize_t)(count + 1) / 2 : 0;
    }
    if (strcmp(fault, "EINTR") == 0) {
        errno = EINTR;
        return call % 2 == 0 ? -1 : (ssize_t)count;
    }
    errno = atoi(fault);
    return call == 0 && !is_from_first ? (ssize_t)(count + 1) / 2 : -1;
}

ssize_t read(int file, void *buffer, size_t count) {
    ssize_t (*next)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    if (is_faulty("read", file)) {
        ssize_t moved = faulty(count, 0);
        return moved <= 0 ? moved : next(file, buffer, (size_t)moved);
    }
    return next(file, buffer, count);
}

ssize_t write(int file, const void *buffer, size_t count) {
    ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (is_faulty("write", file)) {
        ssize_t moved = faulty(count, 0);
        return moved <= 0 ? moved : next(file, buffer, (size_t)moved);
    }
    return next(file, buffer, count);
}

int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (is_faulty("fsync", file) && faulty(1, 1) < 0) {
        return -1;
    }
    return next(file);
}
