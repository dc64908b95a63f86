// Initialisation, devices, contexts, error names and symbol lookup.
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define STACK 64

static atomic_bool initialized;
static Context contexts[MAX_DEVICES];
static __thread Context *stack[STACK];
static __thread int depth;

bool is_initialized(void) { return initialized; }

Context *current_context(void) { return depth ? stack[depth - 1] : NULL; }

int device_count(void) {
  long devices = setting("STANDIN_CUDA_DEVICES", 1);
  return devices < 0 ? 0 : devices > MAX_DEVICES ? MAX_DEVICES : (int)devices;
}

API CUresult cuInit(unsigned flags) {
  COUNTED;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  long result = setting("STANDIN_CUDA_INIT", CUDA_SUCCESS);
  if (result) return (CUresult)result;
  if (!device_count()) return CUDA_ERROR_NO_DEVICE;
  if (!initialized) {
    for (int i = 0; i < MAX_DEVICES; i++) contexts[i].device = i;
    sweep();
    initialized = true;
  }
  return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int *version) {
  COUNTED;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = (int)setting("STANDIN_CUDA_VERSION", 12060);
  return CUDA_SUCCESS;
}

#define NEEDS_DEVICE(device)                                                          \
  do {                                                                                \
    COUNTED;                                                                          \
    if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;                              \
    if ((device) < 0 || (device) >= device_count()) return CUDA_ERROR_INVALID_DEVICE; \
  } while (0)

API CUresult cuDeviceGetCount(int *count) {
  COUNTED;
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *count = device_count();
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  NEEDS_DEVICE(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  NEEDS_DEVICE(device);
  snprintf(name, length, "stand-in %d, no GPU", device);
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) {
  NEEDS_DEVICE(device);
  memcpy(uuid, "STANDIN-CUDA-00", 15);
  uuid[15] = (unsigned char)('0' + device);
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  NEEDS_DEVICE(device);
  *bytes = (size_t)setting("STANDIN_CUDA_MEMORY_MB", 256) << 20;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  NEEDS_DEVICE(device);
  enum { UNIFIED_ADDRESSING = 41, MAJOR = 75, MINOR = 76 };
  *value = attribute == UNIFIED_ADDRESSING ? 1 : attribute == MAJOR ? 9 : 0;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(Context **context, CUdevice device) {
  NEEDS_DEVICE(device);
  contexts[device].retained++;
  atomic_fetch_add(&counter("live.contexts")->value, 1);
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  NEEDS_DEVICE(device);
  if (contexts[device].retained <= 0) return CUDA_ERROR_INVALID_CONTEXT;
  contexts[device].retained--;
  atomic_fetch_add(&counter("live.contexts")->value, -1);
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  NEEDS_DEVICE(device);
  *flags = 0;
  *active = contexts[device].retained > 0;
  return CUDA_SUCCESS;
}

// A context that nobody retains cannot be used.
static CUresult check(Context *context) {
  bool known = context >= contexts && context < contexts + MAX_DEVICES;
  return known && context->retained > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxSetCurrent(Context *context) {
  COUNTED;
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context) {
    depth = depth ? depth - 1 : 0;
    return CUDA_SUCCESS;
  }
  if (check(context)) return check(context);
  depth = depth ? depth : 1;
  stack[depth - 1] = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(Context **context) {
  COUNTED;
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *context = current_context();
  return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(Context *context) {
  COUNTED;
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (check(context) || depth == STACK) return CUDA_ERROR_INVALID_CONTEXT;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(Context **context) {
  COUNTED;
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  depth--;
  if (context) *context = stack[depth];
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
  NEEDS_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
  NEEDS_CONTEXT;
  synchronize_all();
  return CUDA_SUCCESS;
}

static const struct { CUresult code; const char *name, *text; } errors[] = {
  {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
  {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
  {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "not initialized"},
  {CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub"},
  {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
  {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no such device"},
  {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no usable context"},
  {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "not mapped"},
  {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "no peer access"},
  {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
  {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "not found"},
  {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "not ready"},
  {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
};

API CUresult cuGetErrorName(CUresult code, const char **name) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code == code) {
      *name = errors[i].name;
      return CUDA_SUCCESS;
    }
  }
  *name = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult code, const char **text) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code == code) {
      *text = errors[i].text;
      return CUDA_SUCCESS;
    }
  }
  *text = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

// Programs that bind at run time ask for plain names and get the newest form.
API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
  (void)version, (void)flags;
  static void *library;
  Dl_info own;
  if (!library && dladdr((void *)cuInit, &own)) library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  char name[128];
  snprintf(name, sizeof name, "%s_v2", symbol);
  *function = dlsym(library, name);
  if (!*function) *function = dlsym(library, symbol);
  if (status) *status = *function ? 0 : 1;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
