/* For LD_PRELOAD: reads take as long as on a slow disk. Every read of MNIST's images takes 30 ms. With the variables
 *   SLOW_NAME  part of the path of other files
 *   SLOW_MARK  path of a file
 * the first read of these files takes longer than any test, unless the mark exists. The reader creates it before, with its
 * process number. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { MICROSECONDS = 30000, SECONDS = 3600 };

/* Returns 1 if this process has created the mark. */
static int creates_mark(void) {
    const char *mark = getenv("SLOW_MARK");
    int file = mark == NULL ? -1 : open(mark, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file < 0) {
        return 0;
    }
    dprintf(file, "%d\n", getpid());
    close(file);
    return 1;
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off64_t offset) {
    ssize_t (*next)(int, void *, size_t, off64_t) = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    const char *name = getenv("SLOW_NAME");
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (readlink(link, path, sizeof path - 1) > 0) {
        if (name == NULL && strstr(path, "-images-idx3-ubyte") != NULL) {
            usleep(MICROSECONDS);
        } else if (name != NULL && strstr(path, name) != NULL && creates_mark()) {
            sleep(SECONDS);
        }
    }
    return next(descriptor, buffer, size, offset);
}
