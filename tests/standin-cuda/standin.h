// A stand-in for NVIDIA's driver library (libcuda.so.1) for machines without a GPU: device memory is
// a file that processes share, streams are threads that are late on purpose, and what the real driver
// leaves undefined is written down as a violation. Only what this project calls is here. Thread-safe.
//
// It is steered by the environment:
//   STANDIN_CUDA_DIR         folder for memory files, counters and violations; default /dev/shm
//   STANDIN_CUDA_DEVICES     number of devices, at most 8; default 1, 0 is a driver without any
//   STANDIN_CUDA_MEMORY_MB   memory of each device and process; default 256
//   STANDIN_CUDA_DELAY_US    how late each operation of a stream starts; default 2000
//   STANDIN_CUDA_GATE        streams stand still while there is a file of that name
//   STANDIN_CUDA_VERSION     what cuDriverGetVersion says; default 12060
//   STANDIN_CUDA_INIT        what cuInit returns; default 0
//   STANDIN_CUDA_NO_PEERS    set: devices cannot reach each other's memory
//
// Its rules. Each is broken once in StandInRulesTest, which compares this list with its own:
//   rule initialise-first:        nothing works before cuInit
//   rule context-first:           memory, streams and events need a context that is current on the thread
//   rule no-host-access:          a host that reads a device address dies
//   rule range-in-one-allocation: a copy stays within one allocation
//   rule free-once:               only the start of a living allocation is freed
//   rule memory-is-limited:       more than there is is refused
//   rule no-own-handle:           a process does not open its own handles
//   rule opens-are-counted:       opened twice it is one address, closed as often as it was opened
//   rule lazy-peer-access:        a handle is opened with that flag
//   rule handle-unchanged:        a handle with any bit changed opens nothing
//   rule handle-alive:            nor does that of freed memory or of a dead process
//   rule handles-of-plain-memory: pools, managed and imported memory have no handle
//   rule blocks-are-shared:       who opens a small allocation sees its neighbours
//   rule free-while-imported:     memory that somebody has open is not freed
//   rule use-after-free:          freed memory is not read
//   rule exit-while-imported:     nor does its process end
//   rule the-dead-hold-nothing:   what a dead process had open is closed
//   rule the-dead-leave-nothing:  files of dead processes are removed
//   rule streams-are-late:        what is not waited for is not there yet
//   rule events-between-processes: events order processes: two flags, no handle of one's own or of another kind
//   rule close-while-busy:        an import that a stream still reads is not closed
//   rule peers-only:              devices that cannot reach each other share nothing
//   rule addresses-come-again:    every process has the same addresses, at once again
//   rule files-go-first:          a process that ends takes its files along
#ifndef STANDIN_H
#define STANDIN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define API __attribute__((visibility("default")))
#define MAX_DEVICES 8
#define MAX_IMPORTERS 64
#define PAGE 4096UL
#define GRANULE (2UL << 20)  // the real driver's unit: smaller allocations share one
#define SUBALIGN 512UL
#define HANDLE_BYTES 64
#define PATH_BYTES 512

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct { unsigned char bytes[HANDLE_BYTES]; } IpcHandle;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_MAP_FAILED = 205,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801
};

// ---- report.c: what tests read

// One line of the counter file: a name and a number, 64 bytes, so that other processes can read it.
typedef struct { char name[56]; _Atomic int64_t value; } Counter;

Counter *counter(const char *name);
void violation(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *folder(void);
long setting(const char *name, long otherwise);
uint64_t start_time(pid_t pid);
bool is_alive(pid_t pid, uint64_t started);
void sweep(void);

// Counts the call of the function it stands in.
#define COUNTED                                                     \
  do {                                                              \
    static Counter *calls;                                          \
    if (!calls) calls = counter(__func__);                          \
    atomic_fetch_add(&calls->value, 1);                             \
  } while (0)

// ---- device.c: devices and contexts

typedef struct { CUdevice device; atomic_int retained; } Context;

bool is_initialized(void);
Context *current_context(void);
int device_count(void);

// Every call that needs a context starts so.
#define NEEDS_CONTEXT                                               \
  do {                                                              \
    COUNTED;                                                        \
    if (!is_initialized()) return CUDA_ERROR_NOT_INITIALIZED;       \
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;      \
  } while (0)

// ---- memory.c: blocks of device memory, and the allocations in them

typedef struct { pid_t pid; uint64_t started; } Process;

// The first page of a block's file.
typedef struct {
  uint64_t magic;
  uint64_t size;
  atomic_int freed;
  Process importers[MAX_IMPORTERS];  // pid 0: free
} Control;

typedef enum { EXPORTABLE, POOL, MANAGED, IMPORTED } Kind;

typedef struct Block {
  struct Block *next;
  Kind kind;
  CUdevice device;
  uint64_t id;
  Process owner;
  CUdeviceptr address;  // what programs see; PROT_NONE unless managed
  char *bytes;          // the same memory, for this library only
  size_t size;
  size_t used;
  int live;             // allocations in it
  int opens;            // of an imported one
  atomic_int pending;   // stream operations that will touch it
  Control *control;     // null where the memory cannot be exported
} Block;

typedef struct Allocation {
  struct Allocation *next;
  Block *block;
  CUdeviceptr address;
  size_t size;
  uint64_t id;
} Allocation;

extern pthread_mutex_t memory_lock;
extern Block *blocks;

Allocation *allocation_at(CUdeviceptr address);
Block *block_at(CUdeviceptr address);
Block *map_block(const char *path, int flags, size_t size, Kind kind, CUdevice device);
void unmap_block(Block *block);
void block_path(char *path, Process owner, uint64_t id);
uint64_t next_id(void);
Process self(void);
int living_importers(Control *control);

// ---- stream.c

typedef struct Stream Stream;

Stream *stream_of(void *handle);
void synchronize(Stream *stream);
void synchronize_all(void);
CUresult enqueue_copy(Stream *stream, Block *to, char *destination, Block *from, const char *source, size_t bytes);
CUresult enqueue_fill(Stream *stream, Block *to, char *destination, unsigned char value, size_t bytes);

#endif
