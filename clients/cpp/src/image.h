#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/ipc/writer.h>
#include <arrow/type.h>

#include "ucx.h"
#include "wire.h"

namespace dissociated {

/// One IPC message of a stream.
struct ImageMessage {
  std::shared_ptr<arrow::Buffer> flatbuffer;
  bool has_body;
  uint64_t body_length;
  /// The packed body in pieces, padding included.
  std::vector<std::shared_ptr<arrow::Buffer>> parts;
  /// The buffers of the metadata in shared memory; empty unless the stream was placed there.
  std::vector<wire::Range> placed;
};

/// A stream as it will be sent, made once: serving it is a replay.
struct Image {
  std::shared_ptr<arrow::Schema> schema;
  std::vector<ImageMessage> messages;
  int64_t rows = 0;
  int64_t batches = 0;

  /// Reads an Arrow IPC file or stream.
  static Image Load(const std::string& path);

  /// Bytes that Place needs.
  size_t BytesToPlace() const;
  /// Copies all bodies to `memory`, which peers can read.
  void Place(uint8_t* memory);
};

}  // namespace dissociated
