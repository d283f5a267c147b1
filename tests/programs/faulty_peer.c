/* A faulty peer of a key-value store, for LD_PRELOAD. In a process with the variables
 *   FAULTY_FRAME  kind and number of a sent frame, "5 20" for its 20th push (protocol.rs has the kinds)
 *   FAULT         half, or the number of a kind
 * that frame is cut in the middle of its payload (half), or replaced by a frame of that kind without a payload. The sending
 * thread then prints a message to standard error and sends nothing more; the process and its reports continue. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_BYTES = 24 };

static atomic_int frames, cut_socket = -1;

static void stop(void) {
    dprintf(STDERR_FILENO, "the faulty frame is sent\n");
    for (;;) {
        pause();
    }
}

ssize_t send(int socket, const void *bytes, size_t count, int flags) {
    ssize_t (*next)(int, const void *, size_t, int) =
        (ssize_t (*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    const char *frame = getenv("FAULTY_FRAME"), *fault = getenv("FAULT");
    uint32_t wanted, kind;
    int number;
    if (frame == NULL || fault == NULL || sscanf(frame, "%u %d", &wanted, &number) != 2) {
        return next(socket, bytes, count, flags);
    }
    if (atomic_load(&cut_socket) == socket) {
        next(socket, bytes, (count + 1) / 2, flags);
        stop();
    }
    if (count == HEADER_BYTES && memcpy(&kind, bytes, sizeof kind) && kind == wanted &&
        atomic_fetch_add(&frames, 1) + 1 == number) {
        if (strcmp(fault, "half") == 0) {
            atomic_store(&cut_socket, socket);
        } else {
            uint32_t other[HEADER_BYTES / sizeof(uint32_t)] = {(uint32_t)atoi(fault)};
            next(socket, other, sizeof other, flags);
            stop();
        }
    }
    return next(socket, bytes, count, flags);
}
