/* Simulates more connections than a process may have file descriptors. Preloaded into the launcher with LD_PRELOAD by
 * scripts/dev/measure_launcher.py.
 *
 * A connection from 127.64.A.B belongs to rank 256 A + B. It is accepted and closed, and the launcher receives a virtual
 * descriptor that the kernel does not know. The data of these ranks arrives over shared connections (carriers) from
 * 127.65.0.x, in frames of rank, length and bytes. The functions below handle reads, waits and closes of virtual
 * descriptors, and pass everything else to libc. Only one thread may call them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define FIRST_DESCRIPTOR (1 << 20)
#define RANKS (1 << 16)
#define CARRIERS 256
#define CHUNK (1 << 16)
/* Keys of the epoll set that the launcher does not use: it counts connections from 0, and its other keys are the highest. */
#define CARRIER_EVENT ((uint64_t)1 << 62)
#define BELL_EVENT (CARRIER_EVENT + CARRIERS)

struct rank {
    struct epoll_event wanted;
    char *bytes;
    size_t count;
    int is_added, is_ready;
};

struct carrier {
    int socket, is_added;
    size_t count;
    char bytes[2 * CHUNK];
};

static struct rank ranks[RANKS];
static struct carrier carriers[CARRIERS];
/* The epoll set of the ranks' connections; the launcher has others, which other threads use. */
static int carrier_count, bell = -1, ranks_epoll = -1;
/* Queue of ranks with unread data that the launcher polls. */
static uint32_t ready[RANKS];
static size_t first_ready, ready_count;

/* Returns the rank of a virtual descriptor, NULL for a real one. */
static struct rank *find_rank(int descriptor) {
    return descriptor >= FIRST_DESCRIPTOR ? &ranks[descriptor - FIRST_DESCRIPTOR] : NULL;
}

static void mark_ready(struct rank *rank) {
    if (rank->is_added && rank->count > 0 && !rank->is_ready) {
        rank->is_ready = 1;
        ready[(first_ready + ready_count++) % RANKS] = (uint32_t)(rank - ranks);
    }
}

static void read_frames(struct carrier *carrier) {
    ssize_t count = NEXT(ssize_t, recv, int, void *, size_t, int)(carrier->socket, carrier->bytes + carrier->count, CHUNK, 0);
    carrier->count += count > 0 ? (size_t)count : 0;
    size_t at = 0;
    uint32_t frame[2];
    for (; carrier->count - at >= sizeof frame; at += sizeof frame + frame[1]) {
        memcpy(frame, carrier->bytes + at, sizeof frame);
        if (frame[0] >= RANKS || frame[1] > CHUNK / 2) {
            abort();
        }
        if (carrier->count - at < sizeof frame + frame[1]) {
            break;
        }
        struct rank *rank = &ranks[frame[0]];
        rank->bytes = realloc(rank->bytes, rank->count + frame[1]);
        memcpy(rank->bytes + rank->count, carrier->bytes + at + sizeof frame, frame[1]);
        rank->count += frame[1];
        mark_ready(rank);
    }
    carrier->count -= at;
    memmove(carrier->bytes, carrier->bytes + at, carrier->count);
}

int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
    for (;;) {
        int socket = NEXT(int, accept4, int, struct sockaddr *, socklen_t *, int)(listener, address, length, flags);
        struct sockaddr_in6 peer;
        socklen_t size = sizeof peer;
        if (socket < 0 || getpeername(socket, (struct sockaddr *)&peer, &size) != 0) {
            return socket;
        }
        const uint8_t *from = peer.sin6_family == AF_INET6 ? peer.sin6_addr.s6_addr + 12
                                                            : (uint8_t *)&((struct sockaddr_in *)&peer)->sin_addr;
        if (from[0] == 127 && from[1] == 64) {
            NEXT(int, close, int)(socket);
            return FIRST_DESCRIPTOR + 256 * from[2] + from[3];
        }
        if (from[0] != 127 || from[1] != 65 || carrier_count == CARRIERS) {
            return socket;
        }
        fcntl(socket, F_SETFL, O_NONBLOCK);
        carriers[carrier_count++].socket = socket;
    }
}

int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event) {
    int (*next)(int, int, int, struct epoll_event *) = NEXT(int, epoll_ctl, int, int, int, struct epoll_event *);
    struct rank *rank = find_rank(descriptor);
    if (rank == NULL) {
        return next(epoll, operation, descriptor, event);
    }
    struct epoll_event entry = {.events = EPOLLIN, .data.u64 = BELL_EVENT};
    if (bell < 0) {
        bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        ranks_epoll = epoll;
        next(epoll, EPOLL_CTL_ADD, bell, &entry);
    }
    for (int index = 0; index < carrier_count; ++index) {
        if (!carriers[index].is_added) {
            entry.data.u64 = CARRIER_EVENT + (uint64_t)index;
            carriers[index].is_added = next(epoll, EPOLL_CTL_ADD, carriers[index].socket, &entry) == 0;
        }
    }
    rank->wanted = *event;
    rank->is_added = 1;
    mark_ready(rank);
    eventfd_write(bell, 1);
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    int found = NEXT(int, epoll_wait, int, struct epoll_event *, int, int)(epoll, events, most, timeout), count = 0;
    if (epoll != ranks_epoll) {
        return found;
    }
    for (int index = 0; index < found; ++index) {
        uint64_t event = events[index].data.u64;
        eventfd_t value;
        if (event == BELL_EVENT) {
            eventfd_read(bell, &value);
        } else if (event >= CARRIER_EVENT && event < BELL_EVENT) {
            read_frames(&carriers[event - CARRIER_EVENT]);
        } else {
            events[count++] = events[index];
        }
    }
    for (; ready_count > 0 && count < most; --ready_count) {
        struct rank *rank = &ranks[ready[first_ready]];
        first_ready = (first_ready + 1) % RANKS;
        rank->is_ready = 0;
        if (rank->is_added) {
            events[count] = rank->wanted;
            events[count++].events = EPOLLIN;
        }
    }
    if (ready_count > 0) {
        eventfd_write(bell, 1);
    }
    return found < 0 ? found : count;
}

ssize_t recv(int descriptor, void *bytes, size_t most, int flags) {
    struct rank *rank = find_rank(descriptor);
    if (rank == NULL) {
        return NEXT(ssize_t, recv, int, void *, size_t, int)(descriptor, bytes, most, flags);
    }
    size_t count = rank->count < most ? rank->count : most;
    if (count == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(bytes, rank->bytes, count);
    rank->count -= count;
    memmove(rank->bytes, rank->bytes + count, rank->count);
    if (rank->count > 0) {
        mark_ready(rank);
        eventfd_write(bell, 1);
    } else {
        free(rank->bytes);
        rank->bytes = NULL;
    }
    return (ssize_t)count;
}

ssize_t send(int descriptor, const void *bytes, size_t count, int flags) {
    if (find_rank(descriptor) != NULL) {
        return (ssize_t)count;
    }
    return NEXT(ssize_t, send, int, const void *, size_t, int)(descriptor, bytes, count, flags);
}

/* One variadic argument is passed in the same way as a fixed one. */
int ioctl(int descriptor, unsigned long request, void *argument) {
    return find_rank(descriptor) != NULL ? 0 : NEXT(int, ioctl, int, unsigned long, void *)(descriptor, request, argument);
}

/* A debug build checks that a descriptor is open before it closes it. */
int fcntl(int descriptor, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return find_rank(descriptor) != NULL ? 0 : NEXT(int, fcntl, int, int, ...)(descriptor, command, argument);
}

int close(int descriptor) {
    struct rank *rank = find_rank(descriptor);
    if (rank == NULL) {
        return NEXT(int, close, int)(descriptor);
    }
    rank->is_added = 0;
    return 0;
}
