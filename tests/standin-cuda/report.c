// Counters that other processes can read, the log of violations, and the traces of dead processes.
#include "standin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_COUNTERS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Counter *counters;
static Counter spare;

const char *folder(void) {
  const char *set = getenv("STANDIN_CUDA_DIR");
  return set && *set ? set : "/dev/shm";
}

long setting(const char *name, long otherwise) {
  const char *set = getenv(name);
  return set && *set ? strtol(set, NULL, 10) : otherwise;
}

// Counters lie in DIR/calls.PID, which stays when the process has ended: tests read it afterwards.
static void open_counters(void) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/calls.%d", folder(), getpid());
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  size_t size = MAX_COUNTERS * sizeof(Counter);
  if (fd < 0 || ftruncate(fd, size)) {
    perror(path);
    abort();
  }
  void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) abort();
  counters = mapped;
}

Counter *counter(const char *name) {
  pthread_mutex_lock(&lock);
  if (!counters) open_counters();
  Counter *found = &spare;
  for (int i = 0; i < MAX_COUNTERS; i++) {
    if (!counters[i].name[0]) snprintf(counters[i].name, sizeof counters[i].name, "%s", name);
    if (!strcmp(counters[i].name, name)) {
      found = &counters[i];
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void violation(const char *rule, const char *format, ...) {
  char line[400];
  int length = snprintf(line, sizeof line, "%s pid=%d ", rule, getpid());
  va_list values;
  va_start(values, format);
  length += vsnprintf(line + length, sizeof line - length - 1, format, values);
  va_end(values);
  if (length > (int)sizeof line - 2) length = sizeof line - 2;
  line[length++] = '\n';
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/violations", folder());
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (write(fd >= 0 ? fd : 2, line, length) < 0) perror("violation not written");
  if (fd >= 0) close(fd);
}

// When the process started, in clock ticks since boot; 0 when there is none of that number.
uint64_t start_time(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  char *field = strrchr(text, ')');  // the name before it may hold anything
  if (!field || field[2] == 'Z') return 0;
  for (int i = 2; field && i < 22; i++) field = strchr(field + 1, ' ');
  return field ? strtoull(field + 1, NULL, 10) : 0;
}

bool is_alive(pid_t pid, uint64_t started) { return pid > 0 && start_time(pid) == started; }

// Removes the memory and event files of processes that died without doing it.
void sweep(void) {
  DIR *listing = opendir(folder());
  if (!listing) return;
  struct dirent *entry;
  while ((entry = readdir(listing))) {
    int pid, user;
    unsigned long long started, id;
    if (sscanf(entry->d_name, "standin-%d-%d-%llu-%llu", &user, &pid, &started, &id) == 4
        && user == (int)getuid() && !is_alive(pid, started)) {
      unlinkat(dirfd(listing), entry->d_name, 0);
    }
  }
  closedir(listing);
}
