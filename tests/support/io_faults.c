/* Makes file calls of a process fail on demand, for tests of what a broker does then.

   Loaded with LD_PRELOAD. IO_FAULTS_CONTROL names a file of eight 32-bit integers that the test
   writes while the process runs; IO_FAULTS_PREFIX is the path prefix of the files concerned. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, STAT = 8, STATVFS = 16, OPEN = 32, READ = 64, EXTEND = 128 };

struct control {
    int32_t calls;   /* which calls fail: a sum of the values above; 0 for none */
    int32_t error;   /* the errno they fail with; 0 makes a write short instead; -1 holds the call */
    int32_t skip;    /* so many succeed first */
    int32_t times;   /* so many fail; -1 for all from then on */
    int32_t hits;    /* counted here: how many failed */
    int32_t unused[3];
};

static struct control *control;
static const char *prefix;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("IO_FAULTS_CONTROL");
    prefix = getenv("IO_FAULTS_PREFIX");
    if (path == NULL || prefix == NULL) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *memory = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) control = memory;
}

static int strikes_path(int call, const char *path) {
    if (control == NULL || !(control->calls & call) || path == NULL) return 0;
    if (strncmp(path, prefix, strlen(prefix)) != 0) return 0;
    if (__atomic_sub_fetch(&control->skip, 1, __ATOMIC_SEQ_CST) >= 0) return 0;
    if (control->times == 0) return 0;
    if (control->times > 0 && __atomic_sub_fetch(&control->times, 1, __ATOMIC_SEQ_CST) < 0) {
        control->times = 0;
        return 0;
    }
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
    if (control->error == -1) {
        while (*(volatile int32_t *)&control->calls & call) usleep(1000);
        return 0;
    }
    errno = control->error;
    return 1;
}

static int strikes(int call, int fd) {
    if (control == NULL || !(control->calls & call)) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strikes_path(call, path);
}

/* As on a full disk: what a file has already can be written again. */
static int strikes_extension(int fd, off_t end) {
    struct stat found;
    if (control == NULL || !(control->calls & EXTEND) || fstat(fd, &found) != 0) return 0;
    return end > found.st_size && strikes(EXTEND, fd);
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* Files that bypass the page cache are written in whole blocks. */
static size_t half(int fd, size_t size) {
    return fcntl(fd, F_GETFL) & O_DIRECT ? size / 2 & ~(size_t)4095 : size / 2;
}

#define PWRITE(function) \
ssize_t function(int fd, const void *data, size_t size, off_t offset) { \
    REAL(ssize_t, #function, int, const void *, size_t, off_t); \
    if (strikes_extension(fd, offset + (off_t)size)) return -1; \
    if (strikes(WRITE, fd)) { \
        if (control->error) return -1; \
        size = half(fd, size); \
        if (size == 0) { errno = ENOSPC; return -1; } \
    } \
    return real(fd, data, size, offset); \
}
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(function) \
ssize_t function(int fd, const struct iovec *parts, int count, off_t offset) { \
    REAL(ssize_t, #function, int, const struct iovec *, int, off_t); \
    off_t end = offset; \
    for (int part = 0; part < count; part++) end += (off_t)parts[part].iov_len; \
    if (strikes_extension(fd, end)) return -1; \
    if (strikes(WRITE, fd)) { errno = control->error ? control->error : ENOSPC; return -1; } \
    return real(fd, parts, count, offset); \
}
PWRITEV(pwritev)
PWRITEV(pwritev64)

/* They return the error number. */
#define ALLOCATES(function) \
int function(int fd, off_t offset, off_t size) { \
    REAL(int, #function, int, off_t, off_t); \
    if (strikes_extension(fd, offset + size)) return control->error; \
    if (strikes(WRITE, fd)) return control->error ? control->error : ENOSPC; \
    return real(fd, offset, size); \
}
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (strikes(WRITE, fd)) {
        if (control->error) return -1;
        size = size / 2;
    }
    return real(fd, data, size);
}

#define PREAD(function) \
ssize_t function(int fd, void *data, size_t size, off_t offset) { \
    REAL(ssize_t, #function, int, void *, size_t, off_t); \
    if (strikes(READ, fd)) return -1; \
    return real(fd, data, size, offset); \
}
PREAD(pread)
PREAD(pread64)

#define SYNCS(function) \
int function(int fd) { \
    REAL(int, #function, int); \
    if (strikes(SYNC, fd)) return -1; \
    return real(fd); \
}
SYNCS(fsync)
SYNCS(fdatasync)

#include "synced_writes.h"

#define TRUNCATES(function) \
int function(int fd, off_t size) { \
    REAL(int, #function, int, off_t); \
    if (strikes(TRUNCATE, fd)) return -1; \
    return real(fd, size); \
}
TRUNCATES(ftruncate)
TRUNCATES(ftruncate64)

#define STATS(function) \
int function(const char *path, struct stat *found) { \
    REAL(int, #function, const char *, struct stat *); \
    if (strikes_path(STAT, path)) return -1; \
    return real(path, found); \
}
STATS(stat)
int stat64(const char *path, struct stat64 *found) {
    REAL(int, "stat64", const char *, struct stat64 *);
    if (strikes_path(STAT, path)) return -1;
    return real(path, found);
}

#define STATVFSES(function, kind) \
int function(const char *path, struct kind *found) { \
    REAL(int, #function, const char *, struct kind *); \
    if (strikes_path(STATVFS, path)) return -1; \
    return real(path, found); \
}
STATVFSES(statvfs, statvfs)
STATVFSES(statvfs64, statvfs64)
