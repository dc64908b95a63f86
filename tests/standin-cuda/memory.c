// Device memory: blocks of 2 MiB and more, allocations in them, and copies between them and the host.
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x4d454d4e49444e53ULL
#define POISON 0xDD
// Addresses start here in every process and are used again at once: nobody may tell memory by address.
#define FIRST_ADDRESS 0x7a0000000000ULL

pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
Block *blocks;
static Allocation *allocations;
static atomic_uint_fast64_t ids = 1;
static size_t in_use[MAX_DEVICES];

uint64_t next_id(void) { return atomic_fetch_add(&ids, 1); }

Process self(void) { return (Process){getpid(), start_time(getpid())}; }

void block_path(char *path, Process owner, uint64_t id) {
  snprintf(path, PATH_BYTES, "%s/standin-%d-%d-%llu-%llu", folder(), (int)getuid(), owner.pid,
           (unsigned long long)owner.started, (unsigned long long)id);
}

Allocation *allocation_at(CUdeviceptr address) {
  for (Allocation *a = allocations; a; a = a->next) {
    if (address >= a->address && address - a->address < a->size) return a;
  }
  return NULL;
}

Block *block_at(CUdeviceptr address) {
  for (Block *b = blocks; b; b = b->next) {
    if (address >= b->address && address - b->address < b->size) return b;
  }
  return NULL;
}

int living_importers(Control *control) {
  int living = 0;
  for (int i = 0; i < MAX_IMPORTERS; i++) {
    Process importer = control->importers[i];
    living += is_alive(importer.pid, importer.started);
  }
  return living;
}

// Device addresses are reserved without access: a program that reads one dies of SIGSEGV.
static CUdeviceptr reserve(size_t size) {
  CUdeviceptr address = FIRST_ADDRESS;
  for (int tries = 0; tries < 1 << 16; tries++) {
    void *got = mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                     -1, 0);
    if (got == (void *)address) return address;
    if (got != MAP_FAILED) munmap(got, size);
    Block *there = block_at(address);
    address = there ? there->address + there->size : address + GRANULE;
  }
  return 0;
}

// Maps the file behind a block, new or another process's. Without a path it is private memory.
Block *map_block(const char *path, int flags, size_t size, Kind kind, CUdevice device) {
  int fd = path ? open(path, flags | O_RDWR | O_CLOEXEC, 0600) : memfd_create("standin-cuda", MFD_CLOEXEC);
  if (fd < 0) return NULL;
  size_t head = path ? PAGE : 0;
  bool created = !path || (flags & O_CREAT);
  Block *block = calloc(1, sizeof *block);
  block->kind = kind;
  block->device = device;
  if (created && posix_fallocate(fd, 0, head + size)) goto failed;
  if (path) {
    block->control = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (block->control == MAP_FAILED) goto failed;
    if (created) *block->control = (Control){.magic = MAGIC, .size = size};
    if (block->control->magic != MAGIC || block->control->freed) goto failed_control;
    size = block->control->size;
  }
  block->size = size;
  block->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, head);
  if (block->bytes == MAP_FAILED) goto failed_control;
  block->address = kind == MANAGED ? (CUdeviceptr)block->bytes : reserve(size);
  close(fd);
  block->next = blocks;
  blocks = block;
  return block;
failed_control:
  if (block->control) munmap(block->control, PAGE);
failed:
  if (created && path) unlink(path);
  close(fd);
  free(block);
  return NULL;
}

void unmap_block(Block *block) {
  for (Block **link = &blocks; *link; link = &(*link)->next) {
    if (*link == block) {
      *link = block->next;
      break;
    }
  }
  if (block->kind != MANAGED) munmap((void *)block->address, block->size);
  munmap(block->bytes, block->size);
  if (block->control) munmap(block->control, PAGE);
  free(block);
}

static Block *new_block(size_t bytes, Kind kind) {
  CUdevice device = current_context()->device;
  size_t size = (bytes + GRANULE - 1) & ~(GRANULE - 1);
  size_t limit = (size_t)setting("STANDIN_CUDA_MEMORY_MB", 256) << 20;
  if (size < bytes || size > limit - in_use[device]) return NULL;
  char path[PATH_BYTES];
  Process owner = self();
  uint64_t id = next_id();
  block_path(path, owner, id);
  Block *block = map_block(kind == EXPORTABLE ? path : NULL, O_CREAT | O_EXCL, size, kind, device);
  if (!block) return NULL;
  block->owner = owner;
  block->id = id;
  in_use[device] += size;
  return block;
}

// As with the real driver, small allocations share a block, and an importer of one sees them all.
static Block *shared_block(size_t bytes) {
  for (Block *b = blocks; b; b = b->next) {
    if (b->kind == EXPORTABLE && b->size == GRANULE && b->device == current_context()->device
        && bytes <= b->size - b->used) {
      return b;
    }
  }
  return NULL;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, Kind kind) {
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&memory_lock);
  size_t rounded = (bytes + SUBALIGN - 1) & ~(SUBALIGN - 1);
  Block *block = kind == EXPORTABLE && bytes < GRANULE ? shared_block(rounded) : NULL;
  if (!block) block = new_block(bytes, kind);
  if (block) {
    Allocation *made = calloc(1, sizeof *made);
    *made = (Allocation){allocations, block, block->address + block->used, bytes, next_id()};
    block->used += rounded;
    block->live++;
    allocations = made;
    *address = made->address;
    atomic_fetch_add(&counter("live.allocations")->value, 1);
  }
  pthread_mutex_unlock(&memory_lock);
  return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  NEEDS_CONTEXT;
  return allocate(address, bytes, EXPORTABLE);
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, void *stream) {
  NEEDS_CONTEXT;
  (void)stream;
  return allocate(address, bytes, POOL);
}

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
  NEEDS_CONTEXT;
  (void)flags;
  return allocate(address, bytes, MANAGED);
}

// Poisons what is freed, so that a late reader sees neither old data nor a lucky copy of it.
static void release(Allocation *gone) {
  Block *block = gone->block;
  memset(block->bytes + (gone->address - block->address), POISON, gone->size);
  atomic_fetch_add(&counter("live.allocations")->value, -1);
  if (--block->live == 0) {
    if (block->control) {
      char path[PATH_BYTES];
      block_path(path, block->owner, block->id);
      block->control->freed = 1;
      unlink(path);
    }
    in_use[block->device] -= block->size;
    unmap_block(block);
  }
  free(gone);
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
  NEEDS_CONTEXT;
  if (!address) return CUDA_SUCCESS;
  synchronize_all();
  pthread_mutex_lock(&memory_lock);
  Allocation **link = &allocations;
  while (*link && (*link)->address != address) link = &(*link)->next;
  Allocation *gone = *link;
  if (gone) {
    *link = gone->next;
    Control *control = gone->block->control;
    int importers = control ? living_importers(control) : 0;
    if (importers) {
      violation("free-while-imported", "address=0x%llx importers=%d", (unsigned long long)address, importers);
    }
    release(gone);
  }
  pthread_mutex_unlock(&memory_lock);
  return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFreeAsync(CUdeviceptr address, void *stream) {
  synchronize(stream_of(stream));
  return cuMemFree_v2(address);
}

API CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
  NEEDS_CONTEXT;
  pthread_mutex_lock(&memory_lock);
  *total = (size_t)setting("STANDIN_CUDA_MEMORY_MB", 256) << 20;
  *unused = *total - in_use[current_context()->device];
  pthread_mutex_unlock(&memory_lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  NEEDS_CONTEXT;
  pthread_mutex_lock(&memory_lock);
  Allocation *allocation = allocation_at(address);
  Block *block = allocation ? NULL : block_at(address);
  bool imported = block && block->kind == IMPORTED;
  if (base && (allocation || imported)) *base = allocation ? allocation->address : block->address;
  if (size && (allocation || imported)) *size = allocation ? allocation->size : block->size;
  pthread_mutex_unlock(&memory_lock);
  return allocation || imported ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// One attribute of the memory at an address; false for one that is not known here.
static bool attribute_of(void *value, int attribute, CUdeviceptr address, Allocation *allocation, Block *block) {
  enum {
    MEMORY_TYPE = 2, POINTER = 3, HOST_POINTER = 4, BUFFER_ID = 7, IS_MANAGED = 8, ORDINAL = 9, IPC_CAPABLE = 10,
    START = 11, SIZE = 12
  };
  switch (attribute) {
    case MEMORY_TYPE: *(unsigned *)value = 2; break;
    case POINTER: *(uint64_t *)value = address; break;
    case HOST_POINTER: *(uint64_t *)value = 0; break;
    case BUFFER_ID: *(uint64_t *)value = allocation ? allocation->id : block->id; break;
    case IS_MANAGED: *(unsigned *)value = block->kind == MANAGED; break;
    case ORDINAL: *(int *)value = block->device; break;
    case IPC_CAPABLE: *(unsigned *)value = block->kind == EXPORTABLE; break;
    case START: *(uint64_t *)value = allocation ? allocation->address : block->address; break;
    case SIZE: *(uint64_t *)value = allocation ? allocation->size : block->size; break;
    default: return false;
  }
  return true;
}

static CUresult attributes(int count, const int *names, void **values, CUdeviceptr address) {
  if (!is_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  pthread_mutex_lock(&memory_lock);
  Allocation *allocation = allocation_at(address);
  Block *block = allocation ? allocation->block : block_at(address);
  CUresult result = block && (allocation || block->kind == IMPORTED) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; !result && i < count; i++) {
    if (!attribute_of(values[i], names[i], address, allocation, block)) result = CUDA_ERROR_INVALID_VALUE;
  }
  pthread_mutex_unlock(&memory_lock);
  return result;
}

API CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
  COUNTED;
  return attributes(1, &attribute, &value, address);
}

// Unlike the real one, for memory of devices only.
API CUresult cuPointerGetAttributes(unsigned count, const int *names, void **values, CUdeviceptr address) {
  COUNTED;
  return attributes((int)count, names, values, address);
}

// A range must lie in one living allocation, or in one imported block. Holds the block for the
// stream's operation.
static CUresult resolve(CUdeviceptr address, size_t bytes, Block **block, char **place) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&memory_lock);
  Allocation *allocation = allocation_at(address);
  Block *found = allocation ? allocation->block : block_at(address);
  if (found && (allocation || found->kind == IMPORTED)) {
    CUdeviceptr end = allocation ? allocation->address + allocation->size : found->address + found->size;
    if (bytes <= end - address) {
      result = CUDA_SUCCESS;
      *block = found;
      *place = found->bytes + (address - found->address);
      found->pending++;
    }
  }
  if (!result && found->kind == IMPORTED && found->control->freed) {
    violation("use-after-free", "the exporter has freed address=0x%llx bytes=%zu", (unsigned long long)address, bytes);
  }
  pthread_mutex_unlock(&memory_lock);
  return result;
}

static CUresult copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t bytes, void *stream,
                     bool wait) {
  if (!bytes) return CUDA_SUCCESS;
  Block *target = NULL, *origin = NULL;
  char *destination = (char *)to, *source = (char *)from;
  CUresult result = to_device ? resolve(to, bytes, &target, &destination) : CUDA_SUCCESS;
  if (!result && from_device) result = resolve(from, bytes, &origin, &source);
  if (result) {
    if (target) target->pending--;
    return result;
  }
  Stream *queue = stream_of(stream);
  result = enqueue_copy(queue, target, destination, origin, source, bytes);
  if (!result && wait) synchronize(queue);
  return result;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy(to, true, (CUdeviceptr)from, false, bytes, NULL, true);
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy((CUdeviceptr)to, false, from, true, bytes, NULL, true);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  return copy(to, true, from, true, bytes, NULL, true);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream) {
  NEEDS_CONTEXT;
  return copy(to, true, (CUdeviceptr)from, false, bytes, stream, false);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream) {
  NEEDS_CONTEXT;
  return copy((CUdeviceptr)to, false, from, true, bytes, stream, false);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream) {
  NEEDS_CONTEXT;
  return copy(to, true, from, true, bytes, stream, false);
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, void *stream) {
  NEEDS_CONTEXT;
  Block *target;
  char *destination;
  CUresult result = resolve(to, bytes, &target, &destination);
  return result ? result : enqueue_fill(stream_of(stream), target, destination, value, bytes);
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
  CUresult result = cuMemsetD8Async(to, value, bytes, NULL);
  if (!result) synchronize(stream_of(NULL));
  return result;
}

// Files must not outlive their process; importers keep what they have mapped.
__attribute__((destructor)) static void leave(void) {
  for (Block *b = blocks; b; b = b->next) {
    if (!b->control || b->kind != EXPORTABLE || b->owner.pid != getpid()) continue;
    char path[PATH_BYTES];
    int importers = living_importers(b->control);
    if (importers) violation("exit-while-imported", "address=0x%llx importers=%d", (unsigned long long)b->address, importers);
    b->control->freed = 1;
    block_path(path, b->owner, b->id);
    unlink(path);
  }
}
