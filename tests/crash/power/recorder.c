/* Records what a process does to its files, so that a test can rebuild what a power cut would leave.

   Loaded with LD_PRELOAD. IO_RECORD names the file that records are appended to; IO_RECORD_PREFIX is
   the path prefix of the files concerned. A record is the struct below, then its data: what was
   written, or a path. Records of writes are made under one lock together with the write itself, so
   their order is that of the writes; a sync has a record before and one after it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE = 2, SYNC_BEGIN = 3, SYNC_END = 4, CREATE = 5, UNLINK = 6, RENAME = 7 };

struct record {
    uint64_t kind;
    uint64_t time_ns;
    uint64_t inode;
    uint64_t offset; /* of a write; the new size for a truncate; which sync it is */
    uint64_t size;   /* of the data that follows */
};

static int output = -1;
static const char *prefix;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t syncs;
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);

__attribute__((constructor)) static void load(void) {
    real_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    real_writev = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    const char *path = getenv("IO_RECORD");
    prefix = getenv("IO_RECORD_PREFIX");
    if (path == NULL || prefix == NULL) return;
    int fd = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    /* Far above what a program opens, so that nobody closes it by its number. */
    output = fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (output >= 0) close(fd); else output = fd;
}

static int concerns_path(const char *path) {
    return output >= 0 && path != NULL && strncmp(path, prefix, strlen(prefix)) == 0;
}

/* The inode if the file is one of ours, else 0. */
static uint64_t concerns(int fd) {
    if (output < 0 || fd == output) return 0;
    struct stat found;
    if (fstat(fd, &found) != 0 || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return concerns_path(path) ? found.st_ino : 0;
}

static void record(uint64_t kind, uint64_t inode, uint64_t offset, const void *data, uint64_t size) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct record head = {kind, now.tv_sec * 1000000000ull + now.tv_nsec, inode, offset, size};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, size}};
    ssize_t done = real_writev(output, parts, size ? 2 : 1);
    if (done != (ssize_t)(sizeof head + size)) abort(); /* half a recording proves nothing */
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define PWRITE(function) \
ssize_t function(int fd, const void *data, size_t size, off_t offset) { \
    REAL(ssize_t, #function, int, const void *, size_t, off_t); \
    uint64_t inode = concerns(fd); \
    if (!inode) return real(fd, data, size, offset); \
    pthread_mutex_lock(&lock); \
    ssize_t done = real(fd, data, size, offset); \
    if (done > 0) record(WRITE, inode, offset, data, done); \
    pthread_mutex_unlock(&lock); \
    return done; \
}
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t write(int fd, const void *data, size_t size) {
    uint64_t inode = fd > 2 ? concerns(fd) : 0;
    if (!inode) return real_write(fd, data, size);
    pthread_mutex_lock(&lock);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real_write(fd, data, size);
    if (done > 0) record(WRITE, inode, offset, data, done);
    pthread_mutex_unlock(&lock);
    return done;
}

#define TRUNCATES(function) \
int function(int fd, off_t size) { \
    REAL(int, #function, int, off_t); \
    uint64_t inode = concerns(fd); \
    if (!inode) return real(fd, size); \
    pthread_mutex_lock(&lock); \
    int result = real(fd, size); \
    if (result == 0) record(TRUNCATE, inode, size, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    return result; \
}
TRUNCATES(ftruncate)
TRUNCATES(ftruncate64)

#define TRUNCATES_PATH(function) \
int function(const char *path, off_t size) { \
    REAL(int, #function, const char *, off_t); \
    struct stat found; \
    if (!concerns_path(path) || stat(path, &found) != 0) return real(path, size); \
    pthread_mutex_lock(&lock); \
    int result = real(path, size); \
    if (result == 0) record(TRUNCATE, found.st_ino, size, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    return result; \
}
TRUNCATES_PATH(truncate)
TRUNCATES_PATH(truncate64)

#define ALLOCATES(function) \
int function(int fd, off_t offset, off_t size) { \
    REAL(int, #function, int, off_t, off_t); \
    uint64_t inode = concerns(fd); \
    if (!inode) return real(fd, offset, size); \
    pthread_mutex_lock(&lock); \
    int result = real(fd, offset, size); \
    struct stat found; \
    if (result == 0 && fstat(fd, &found) == 0) record(TRUNCATE, inode, found.st_size, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    return result; \
}
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)

#define SYNCS(function) \
int function(int fd) { \
    REAL(int, #function, int); \
    uint64_t inode = concerns(fd); \
    if (!inode) return real(fd); \
    pthread_mutex_lock(&lock); \
    uint64_t number = ++syncs; \
    record(SYNC_BEGIN, inode, number, NULL, 0); \
    pthread_mutex_unlock(&lock); \
    int result = real(fd); \
    if (result == 0) { \
        pthread_mutex_lock(&lock); \
        record(SYNC_END, inode, number, NULL, 0); \
        pthread_mutex_unlock(&lock); \
    } \
    return result; \
}
SYNCS(fsync)
SYNCS(fdatasync)

#include "../../support/synced_writes.h"

static int note_open(int fd, const char *path, int flags, int existed) {
    struct stat found;
    if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) {
        if (!existed) record(CREATE, found.st_ino, 0, path, strlen(path));
        else if (flags & O_TRUNC) record(TRUNCATE, found.st_ino, 0, NULL, 0);
    }
    return fd;
}

#define OPENS(function) \
int function(const char *path, int flags, ...) { \
    REAL(int, #function, const char *, int, ...); \
    mode_t mode = 0; \
    if (flags & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
    if (!concerns_path(path) || !(flags & (O_CREAT | O_TRUNC))) return real(path, flags, mode); \
    pthread_mutex_lock(&lock); \
    int existed = access(path, F_OK) == 0; \
    int fd = note_open(real(path, flags, mode), path, flags, existed); \
    pthread_mutex_unlock(&lock); \
    return fd; \
}
OPENS(open)
OPENS(open64)

#define OPENS_AT(function) \
int function(int folder, const char *path, int flags, ...) { \
    REAL(int, #function, int, const char *, int, ...); \
    mode_t mode = 0; \
    if (flags & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
    if (!concerns_path(path) || !(flags & (O_CREAT | O_TRUNC))) return real(folder, path, flags, mode); \
    pthread_mutex_lock(&lock); \
    int existed = access(path, F_OK) == 0; \
    int fd = note_open(real(folder, path, flags, mode), path, flags, existed); \
    pthread_mutex_unlock(&lock); \
    return fd; \
}
OPENS_AT(openat)
OPENS_AT(openat64)

static int note_unlink(int result, const char *path, uint64_t inode) {
    if (result == 0) record(UNLINK, inode, 0, path, strlen(path));
    return result;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    struct stat found;
    if (!concerns_path(path) || stat(path, &found) != 0) return real(path);
    pthread_mutex_lock(&lock);
    int result = note_unlink(real(path), path, found.st_ino);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    struct stat found;
    if (!concerns_path(path) || stat(path, &found) != 0) return real(folder, path, flags);
    pthread_mutex_lock(&lock);
    int result = note_unlink(real(folder, path, flags), path, found.st_ino);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    struct stat found;
    if (!concerns_path(to) || stat(from, &found) != 0) return real(from, to);
    char both[8192];
    int length = snprintf(both, sizeof both, "%s%c%s", from, 0, to);
    pthread_mutex_lock(&lock);
    int result = real(from, to);
    if (result == 0) record(RENAME, found.st_ino, 0, both, length);
    pthread_mutex_unlock(&lock);
    return result;
}
