package dev.dissociated.cuda;

/** Where the fields of the structs of Arrow's C data and C device interfaces lie, on 64 bits. */
final class DeviceArrayLayout {
  /** Bytes of a struct ArrowDeviceArray. */
  static final int LENGTH = 128;

  /** Bytes of the struct ArrowArray that it begins with. */
  static final int ARRAY_LENGTH = 80;

  static final int ROWS = 0;
  static final int NULLS = 8;
  static final int OFFSET = 16;
  static final int BUFFER_COUNT = 24;
  static final int CHILD_COUNT = 32;
  static final int BUFFERS = 40;
  static final int CHILDREN = 48;
  static final int DICTIONARY = 56;
  static final int RELEASE = 64;
  static final int PRIVATE = 72;
  static final int DEVICE = 80;
  static final int DEVICE_TYPE = 88;

  /** Address of a {@code CUevent}, or 0. */
  static final int EVENT = 96;

  static final int RESERVED = 104;

  /** Device types: memory of a device of CUDA's, and memory that moves between host and devices. */
  static final int CUDA = 2;

  static final int CUDA_MANAGED = 13;

  private DeviceArrayLayout() {}
}
