// Memory handles: what another process needs to map a block.
#include "standin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x4c444e484e445453ULL
#define LAZY_ENABLE_PEER_ACCESS 1

typedef struct {
  uint64_t magic, id, offset;
  Process owner;
  uint32_t device, check;
} MemoryHandle;

_Static_assert(sizeof(MemoryHandle) <= HANDLE_BYTES, "a handle has 64 bytes");

// A handle with any bit changed is no handle.
static uint32_t checksum(const MemoryHandle *handle) {
  const unsigned char *bytes = (const unsigned char *)handle;
  uint32_t sum = 2166136261U;
  for (size_t i = 0; i < offsetof(MemoryHandle, check); i++) sum = (sum ^ bytes[i]) * 16777619U;
  return sum;
}

API CUresult cuIpcGetMemHandle(IpcHandle *handle, CUdeviceptr address) {
  NEEDS_CONTEXT;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&memory_lock);
  Allocation *allocation = allocation_at(address);
  // Pools, managed and imported memory have no handles.
  if (handle && allocation && allocation->block->kind == EXPORTABLE) {
    Block *block = allocation->block;
    MemoryHandle said;
    memset(&said, 0, sizeof said);
    said.magic = MAGIC;
    said.id = block->id;
    said.offset = allocation->address - block->address;
    said.owner = block->owner;
    said.device = block->device;
    said.check = checksum(&said);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &said, sizeof said);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&memory_lock);
  return result;
}

static Block *imported(const MemoryHandle *said) {
  for (Block *b = blocks; b; b = b->next) {
    if (b->kind == IMPORTED && b->id == said->id && b->owner.pid == said->owner.pid
        && b->owner.started == said->owner.started) {
      return b;
    }
  }
  return NULL;
}

// Enters this process among a block's importers, in the place of a dead one if need be.
static bool enter(Control *control) {
  for (int i = 0; i < MAX_IMPORTERS; i++) {
    Process there = control->importers[i];
    if (!is_alive(there.pid, there.started)) {
      control->importers[i] = self();
      return true;
    }
  }
  return false;
}

static CUresult import(const MemoryHandle *said, Block **result) {
  CUdevice device = current_context()->device;
  if (said->device != (uint32_t)device && setting("STANDIN_CUDA_NO_PEERS", 0)) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  // Opened again, it is the same memory at the same address; but not once it has been freed.
  Block *block = imported(said);
  if (block && block->control->freed) return CUDA_ERROR_INVALID_HANDLE;
  if (!block) {
    if (!is_alive(said->owner.pid, said->owner.started)) return CUDA_ERROR_INVALID_HANDLE;
    char path[PATH_BYTES];
    block_path(path, said->owner, said->id);
    block = map_block(path, 0, 0, IMPORTED, (CUdevice)said->device);
    if (!block) return CUDA_ERROR_INVALID_HANDLE;
    if (!enter(block->control)) {
      unmap_block(block);
      return CUDA_ERROR_MAP_FAILED;
    }
    block->id = said->id;
    block->owner = said->owner;
    atomic_fetch_add(&counter("live.imports")->value, 1);
  }
  block->opens++;
  *result = block;
  return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, IpcHandle handle, unsigned flags) {
  NEEDS_CONTEXT;
  MemoryHandle said;
  memcpy(&said, &handle, sizeof said);
  if (!address || flags != LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (said.magic != MAGIC || said.check != checksum(&said)) return CUDA_ERROR_INVALID_VALUE;
  if (said.owner.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&memory_lock);
  Block *block;
  CUresult result = import(&said, &block);
  if (!result) *address = block->address + said.offset;
  pthread_mutex_unlock(&memory_lock);
  return result;
}

static void leave(Control *control) {
  for (int i = 0; i < MAX_IMPORTERS; i++) {
    if (control->importers[i].pid == getpid()) control->importers[i] = (Process){0, 0};
  }
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  NEEDS_CONTEXT;
  pthread_mutex_lock(&memory_lock);
  Block *block = block_at(address);
  if (!block || block->kind != IMPORTED) {
    pthread_mutex_unlock(&memory_lock);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (block->opens == 1 && block->pending) {
    violation("close-while-busy", "address=0x%llx operations=%d", (unsigned long long)address, block->pending);
    pthread_mutex_unlock(&memory_lock);
    synchronize_all();
    pthread_mutex_lock(&memory_lock);
  }
  if (--block->opens == 0) {
    leave(block->control);
    unmap_block(block);
    atomic_fetch_add(&counter("live.imports")->value, -1);
  }
  pthread_mutex_unlock(&memory_lock);
  return CUDA_SUCCESS;
}
