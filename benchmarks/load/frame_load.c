/* A load for a broker that costs little itself: frames that are encoded already, over one connection.
 *
 *     frame_load HOST PORT FRAMES --pid N [--in-flight N] [--warm-up S] [--seconds S] [--rate N]
 *
 * FRAMES holds whole frames one after another; they are sent again and again. Without --rate the next goes as
 * soon as fewer than --in-flight are unanswered; with it, so many are due each second whatever comes back, and a
 * latency counts from the moment when a frame was due; the load then has a priority above the broker's, where the
 * system lets it. Each answer must be a success; the records in answers
 * are counted. Prints one JSON object: what happened after the warm-up, and the processor time that process N,
 * the broker, took meanwhile.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 8 << 20, PAUSE_US = 20000, POLL_NS = 50000 };

static uint8_t *frames;
static int64_t *frame_at; /* of each frame, and the end */
static int64_t *due_ns;   /* by opaque, which is the frame's number */
static int64_t frame_count;

static int64_t sent, answered, failed, records;
static uint32_t *latencies_us;
static int64_t latency_count, latency_room;

static void die(const char *what) {
    fprintf(stderr, "frame_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static uint32_t word(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void read_frames(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) die(path);
    frames = malloc(about.st_size);
    frame_at = malloc((about.st_size / 8 + 2) * sizeof *frame_at);
    for (int64_t got = 0, n; got < about.st_size; got += n)
        if ((n = read(fd, frames + got, about.st_size - got)) <= 0) die(path);
    close(fd);
    int64_t at = 0;
    while (at + 4 <= about.st_size) {
        frame_at[frame_count++] = at;
        at += 4 + word(frames + at);
    }
    frame_at[frame_count] = at;
    due_ns = calloc(frame_count, sizeof *due_ns);
}

static int connect_to(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die(host);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Processor time of a process, user and system, in microseconds. */
static int64_t cpu_us(int pid) {
    char path[64], text[1024], *at;
    unsigned long user, system;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) die(path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    at = strrchr(text, ')');
    if (!at || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) die(path);
    return (int64_t)(user + system) * 1000000 / sysconf(_SC_CLK_TCK);
}

/* The number after a name in a JSON header; -1 without it. */
static int64_t json_number(const uint8_t *header, int64_t size, const char *name) {
    const uint8_t *at = memmem(header, size, name, strlen(name));
    return at ? strtoll((const char *)at + strlen(name), NULL, 10) : -1;
}

static void take_answer(const uint8_t *frame, int64_t size) {
    int64_t header_bytes = word(frame) & 0xFFFFFF, code, opaque;
    const uint8_t *header = frame + 4;
    if (frame[0] == 0) {
        code = json_number(header, header_bytes, "\"code\":");
        opaque = json_number(header, header_bytes, "\"opaque\":");
    } else {
        code = header[0] << 8 | header[1];
        opaque = (int32_t)word(header + 5);
    }
    if (code != 0 && failed++ < 3)
        fprintf(stderr, "frame_load: code %lld: %.*s\n", (long long)code, (int)header_bytes, header);
    for (int64_t at = 4 + header_bytes; at + 4 <= size; at += word(frame + at)) {
        if (word(frame + at) < 91) die("a record is malformed");
        records++;
    }
    answered++;
    if (latencies_us && opaque >= 0 && opaque < frame_count && latency_count < latency_room)
        latencies_us[latency_count++] = (now_ns() - due_ns[opaque]) / 1000;
}

static void receive(int fd) {
    static uint8_t *buffer;
    static int64_t held;
    if (!buffer) buffer = malloc(BUFFER_BYTES);
    ssize_t got = recv(fd, buffer + held, BUFFER_BYTES - held, 0);
    if (got == 0) die("the broker closed the connection");
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        die("recv");
    }
    held += got;
    int64_t at = 0;
    while (held - at >= 4 && held - at - 4 >= word(buffer + at)) {
        int64_t size = word(buffer + at);
        take_answer(buffer + at + 4, size);
        at += 4 + size;
    }
    memmove(buffer, buffer + at, held - at);
    held -= at;
}

/* Sends up to `count` frames on; a frame that the kernel takes in part is finished by the next call. */
static void send_frames(int fd, int64_t count) {
    static int64_t next, offset; /* the frame to go next, and how much of it went */
    while (count > 0) {
        int64_t last = next + count < frame_count ? next + count : frame_count;
        int64_t begin = frame_at[next] + offset;
        ssize_t done = send(fd, frames + begin, frame_at[last] - begin, MSG_NOSIGNAL);
        if (done < 0) {
            if (errno == EAGAIN || errno == EINTR) return;
            die("send");
        }
        begin += done;
        while (next < last && frame_at[next + 1] <= begin) next++, sent++, count--;
        offset = begin - frame_at[next];
        if (next == frame_count) next = offset = 0;
        if (offset) return;
    }
}

static void wait_for(int fd, short events, int64_t timeout_ns) {
    struct pollfd one = {.fd = fd, .events = events};
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    ppoll(&one, 1, &timeout, NULL);
}

static void run(int fd, int64_t until_ns, int64_t in_flight, int64_t rate) {
    int64_t begin_ns = now_ns(), now = begin_ns, base = sent, noted = sent;
    while (now < until_ns) {
        int64_t room;
        if (rate) {
            int64_t due = base + (int64_t)((now - begin_ns) / 1e9 * rate);
            for (; noted < due; noted++) due_ns[noted % frame_count] = begin_ns + (int64_t)((noted - base) * 1e9 / rate);
            room = due - sent;
        } else {
            room = in_flight - (sent - answered);
            if (room < in_flight / 2) room = 0;
        }
        if (room > 0) send_frames(fd, room);
        wait_for(fd, room > 0 && !rate && sent - answered < in_flight ? POLLIN | POLLOUT : POLLIN, rate ? POLL_NS : 1000000000);
        receive(fd);
        now = now_ns();
    }
}

static int ascending(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* A load that waits for a core sends late, and its own wait would count as the broker's. */
static int take_precedence(void) {
    struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    return sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
}

static double option(int argc, char **argv, const char *name, double otherwise) {
    for (int i = 4; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name)) return atof(argv[i + 1]);
    return otherwise;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: frame_load HOST PORT FRAMES [--option value]...\n"), 2;
    int pid = (int)option(argc, argv, "--pid", getpid());
    int64_t in_flight = (int64_t)option(argc, argv, "--in-flight", 1), rate = (int64_t)option(argc, argv, "--rate", 0);
    double warm_up = option(argc, argv, "--warm-up", 1), seconds = option(argc, argv, "--seconds", 3);
    read_frames(argv[3]);
    int fd = connect_to(argv[1], atoi(argv[2]));
    run(fd, now_ns() + (int64_t)(warm_up * 1e9), in_flight, rate);
    int precedes = rate && take_precedence();
    int64_t answered_before = answered, records_before = records;
    if (rate) {
        latency_room = (int64_t)(rate * seconds * 1.1) + frame_count;
        latencies_us = malloc(latency_room * sizeof *latencies_us);
    }
    int64_t cpu_before = cpu_us(pid), begin_ns = now_ns();
    run(fd, begin_ns + (int64_t)(seconds * 1e9), in_flight, rate);
    double elapsed = (now_ns() - begin_ns) / 1e9;
    int64_t cpu = cpu_us(pid) - cpu_before, counted = answered - answered_before, read = records - records_before;
    for (int64_t give_up_ns = now_ns() + 20000000000LL; answered < sent && now_ns() < give_up_ns;) {
        wait_for(fd, POLLIN, 1000000000);
        receive(fd);
    }
    printf("{\"sent\": %lld, \"answered\": %lld, \"failed\": %lld, \"seconds\": %.6f, \"counted\": %lld, \"records\": %lld, "
           "\"cpu_us\": %lld",
           (long long)sent, (long long)answered, (long long)failed, elapsed, (long long)counted, (long long)read,
           (long long)cpu);
    if (latency_count) {
        int64_t pauses = 0;
        qsort(latencies_us, latency_count, sizeof *latencies_us, ascending);
        for (int64_t i = latency_count - 1; i >= 0 && latencies_us[i] > PAUSE_US; i--) pauses++;
        printf(", \"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u, \"max_us\": %u, \"late\": %lld, \"precedes\": %d",
               latencies_us[latency_count / 2], latencies_us[latency_count * 99 / 100],
               latencies_us[latency_count * 999 / 1000], latencies_us[latency_count - 1], (long long)pauses,
               precedes);
    }
    puts("}");
    return 0;
}
