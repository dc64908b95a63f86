// Streams: one thread each, in order, and late on purpose, so that a program which does not wait for
// what it has started sees old bytes. Events, which other processes can wait for.
#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_STREAMS 1024
#define POLL_US 50

enum { DISABLE_TIMING = 2, INTERPROCESS = 4 };

typedef struct { _Atomic uint64_t recorded, reached; } Marks;

typedef struct Event {
  struct Event *next;
  unsigned flags;
  bool imported;
  uint64_t id;
  Process owner;
  Marks *marks;  // own, or a file's that other processes see
  Marks own;
} Event;

typedef enum { COPY, FILL, RECORD, WAIT } Action;

typedef struct Operation {
  struct Operation *next;
  Action action;
  Block *to, *from;
  char *destination;
  const char *source;
  unsigned char value;
  size_t bytes;
  Event *event;
  uint64_t mark;
} Operation;

struct Stream {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Operation *first, *last;
  bool busy, stopping;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Stream *streams[MAX_STREAMS];
static Stream *null_stream;
static Event *events;

// What a real driver does when an event's process dies first is not said anywhere; hanging helps nobody.
static void wait_for(const Event *event, uint64_t mark) {
  for (long polls = 1; event->marks->reached < mark; polls++) {
    if (polls % 200 == 0 && !is_alive(event->owner.pid, event->owner.started)) return;
    usleep(POLL_US);
  }
}

static void perform(Operation *o) {
  switch (o->action) {
    case COPY: memmove(o->destination, o->source, o->bytes); break;
    case FILL: memset(o->destination, o->value, o->bytes); break;
    case RECORD: o->event->marks->reached = o->mark; break;
    case WAIT:
      wait_for(o->event, o->mark);
      break;
  }
  if (o->to) o->to->pending--;
  if (o->from) o->from->pending--;
}

// Tests that need something to be late, however slow the machine is, name a file and remove it when it may come.
static bool is_gated(void) {
  const char *gate = getenv("STANDIN_CUDA_GATE");
  return gate && *gate && !access(gate, F_OK);
}

static void *work(void *argument) {
  Stream *s = argument;
  useconds_t delay = (useconds_t)setting("STANDIN_CUDA_DELAY_US", 2000);
  pthread_mutex_lock(&s->lock);
  while (true) {
    while (!s->first && !s->stopping) pthread_cond_wait(&s->changed, &s->lock);
    Operation *o = s->first;
    if (!o) break;
    s->first = o->next;
    if (!s->first) s->last = NULL;
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    if (delay) usleep(delay);
    while (is_gated()) usleep(1000);
    perform(o);
    free(o);
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

static CUresult enqueue(Stream *s, Operation operation) {
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  Operation *o = malloc(sizeof *o);
  *o = operation;
  pthread_mutex_lock(&s->lock);
  if (s->last) s->last->next = o;
  else s->first = o;
  s->last = o;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return CUDA_SUCCESS;
}

CUresult enqueue_copy(Stream *s, Block *to, char *destination, Block *from, const char *source, size_t bytes) {
  return enqueue(s, (Operation){.action = COPY, .to = to, .destination = destination, .from = from, .source = source,
                                .bytes = bytes});
}

CUresult enqueue_fill(Stream *s, Block *to, char *destination, unsigned char value, size_t bytes) {
  return enqueue(s, (Operation){.action = FILL, .to = to, .destination = destination, .value = value, .bytes = bytes});
}

static Stream *new_stream(void) {
  Stream *s = calloc(1, sizeof *s);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_create(&s->thread, NULL, work, s);
  return s;
}

// The stream of a handle; 0, 1 and 2 name the default stream. Null for one that does not exist.
Stream *stream_of(void *handle) {
  pthread_mutex_lock(&lock);
  Stream *found = NULL;
  if ((uintptr_t)handle <= 2) {
    if (!null_stream) null_stream = new_stream();
    found = null_stream;
  }
  for (int i = 0; i < MAX_STREAMS && !found; i++) found = streams[i] == handle ? handle : NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

void synchronize(Stream *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  while (s->first || s->busy) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

void synchronize_all(void) {
  pthread_mutex_lock(&lock);
  synchronize(null_stream);
  for (int i = 0; i < MAX_STREAMS; i++) synchronize(streams[i]);
  pthread_mutex_unlock(&lock);
}

API CUresult cuStreamCreate(Stream **stream, unsigned flags) {
  NEEDS_CONTEXT;
  (void)flags;
  pthread_mutex_lock(&lock);
  int place = 0;
  while (place < MAX_STREAMS && streams[place]) place++;
  if (place < MAX_STREAMS) *stream = streams[place] = new_stream();
  pthread_mutex_unlock(&lock);
  if (place == MAX_STREAMS) return CUDA_ERROR_OUT_OF_MEMORY;
  atomic_fetch_add(&counter("live.streams")->value, 1);
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
  (void)priority;
  return cuStreamCreate(stream, flags);
}

API CUresult cuStreamDestroy_v2(Stream *stream) {
  NEEDS_CONTEXT;
  if ((uintptr_t)stream <= 2 || !stream_of(stream)) return CUDA_ERROR_INVALID_HANDLE;
  synchronize(stream);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_STREAMS; i++) {
    if (streams[i] == stream) streams[i] = NULL;
  }
  pthread_mutex_unlock(&lock);
  pthread_mutex_lock(&stream->lock);
  stream->stopping = true;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  pthread_join(stream->thread, NULL);
  free(stream);
  atomic_fetch_add(&counter("live.streams")->value, -1);
  return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(void *handle) {
  NEEDS_CONTEXT;
  Stream *s = stream_of(handle);
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  synchronize(s);
  return CUDA_SUCCESS;
}

API CUresult cuStreamQuery(void *handle) {
  NEEDS_CONTEXT;
  Stream *s = stream_of(handle);
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&s->lock);
  bool idle = !s->first && !s->busy;
  pthread_mutex_unlock(&s->lock);
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// ---- events

static Marks *map_marks(const char *path, int flags) {
  int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return NULL;
  bool sized = !(flags & O_CREAT) || !ftruncate(fd, PAGE);
  void *mapped = sized ? mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  return mapped == MAP_FAILED ? NULL : mapped;
}

static void enlist(Event *event) {
  pthread_mutex_lock(&lock);
  event->next = events;
  events = event;
  pthread_mutex_unlock(&lock);
  atomic_fetch_add(&counter("live.events")->value, 1);
}

static void unlink_file(const Event *event) {
  if (!(event->flags & INTERPROCESS) || event->imported) return;
  char path[PATH_BYTES];
  block_path(path, event->owner, event->id);
  unlink(path);
}

API CUresult cuEventCreate(Event **event, unsigned flags) {
  NEEDS_CONTEXT;
  if ((flags & INTERPROCESS) && !(flags & DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  Event *made = calloc(1, sizeof *made);
  made->flags = flags;
  made->id = next_id();
  made->owner = self();
  made->marks = &made->own;
  if (flags & INTERPROCESS) {
    char path[PATH_BYTES];
    block_path(path, made->owner, made->id);
    made->marks = map_marks(path, O_CREAT | O_EXCL);
    if (!made->marks) {
      free(made);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  enlist(made);
  *event = made;
  return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(Event *event) {
  NEEDS_CONTEXT;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  synchronize_all();
  pthread_mutex_lock(&lock);
  Event **link = &events;
  while (*link && *link != event) link = &(*link)->next;
  bool known = *link;
  if (known) *link = event->next;
  pthread_mutex_unlock(&lock);
  if (!known) return CUDA_ERROR_INVALID_HANDLE;
  if (event->marks != &event->own) munmap(event->marks, PAGE);
  unlink_file(event);
  free(event);
  atomic_fetch_add(&counter("live.events")->value, -1);
  return CUDA_SUCCESS;
}

API CUresult cuEventRecord(Event *event, void *stream) {
  NEEDS_CONTEXT;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t mark = atomic_fetch_add(&event->marks->recorded, 1) + 1;
  return enqueue(stream_of(stream), (Operation){.action = RECORD, .event = event, .mark = mark});
}

API CUresult cuEventQuery(Event *event) {
  NEEDS_CONTEXT;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  return event->marks->reached >= event->marks->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(Event *event) {
  NEEDS_CONTEXT;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t mark = event->marks->recorded;
  wait_for(event, mark);
  return CUDA_SUCCESS;
}

API CUresult cuStreamWaitEvent(void *stream, Event *event, unsigned flags) {
  NEEDS_CONTEXT;
  (void)flags;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t mark = event->marks->recorded;
  return enqueue(stream_of(stream), (Operation){.action = WAIT, .event = event, .mark = mark});
}

typedef struct { uint64_t magic, id; Process owner; } EventHandle;

#define MAGIC 0x544e45564e445453ULL

API CUresult cuIpcGetEventHandle(IpcHandle *handle, Event *event) {
  NEEDS_CONTEXT;
  if (!event || !(event->flags & INTERPROCESS) || event->imported) return CUDA_ERROR_INVALID_HANDLE;
  EventHandle said = {MAGIC, event->id, event->owner};
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &said, sizeof said);
  return CUDA_SUCCESS;
}

API CUresult cuIpcOpenEventHandle(Event **event, IpcHandle handle) {
  NEEDS_CONTEXT;
  EventHandle said;
  memcpy(&said, &handle, sizeof said);
  if (said.magic != MAGIC) return CUDA_ERROR_INVALID_HANDLE;
  if (said.owner.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  char path[PATH_BYTES];
  block_path(path, said.owner, said.id);
  Marks *marks = map_marks(path, 0);
  if (!marks) return CUDA_ERROR_INVALID_HANDLE;
  Event *opened = calloc(1, sizeof *opened);
  *opened = (Event){.flags = DISABLE_TIMING | INTERPROCESS, .imported = true, .id = said.id, .owner = said.owner,
                    .marks = marks};
  enlist(opened);
  *event = opened;
  return CUDA_SUCCESS;
}

// As with memory, the files of events do not outlive their process.
__attribute__((destructor)) static void leave(void) {
  for (Event *e = events; e; e = e->next) {
    if (e->owner.pid == getpid()) unlink_file(e);
  }
}
