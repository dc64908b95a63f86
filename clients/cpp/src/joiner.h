#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/ipc/message.h>

#include "wire.h"

namespace dissociated {

/// Throws DATA_CORRUPT, or the code that fits the status.
void Check(const arrow::Status& status, const char* what);

template <typename T>
T Take(arrow::Result<T> result, const char* what) {
  Check(result.status(), what);
  return std::move(result).ValueUnsafe();
}

/// Where the buffers of a record batch or dictionary lie in its packed body: offset and length, in the order of the
/// metadata. The message must have been verified (Message::Open does that).
std::vector<wire::Range> BuffersOf(const arrow::ipc::Message& message);

/// Puts metadata and bodies of one stream together, in the order of their numbers, and knows when it is complete:
/// format-docs/stream-states.md. No input or output.
class Joiner {
 public:
  /// One untagged message, prefix included. The flatbuffer must be aligned to 8.
  void AddMetadata(const std::shared_ptr<arrow::Buffer>& message);

  /// Whether a body with that number may still come; throws when it may not.
  void ExpectBody(uint32_t sequence);

  /// What the body belongs to, or null when that has not come.
  const arrow::ipc::Message* MetadataOf(uint32_t sequence) const;

  /// A packed body, complete. Its metadata is there and says the same length.
  void AddBody(uint32_t sequence, std::shared_ptr<arrow::Buffer> body);

  /// The next message in order, or null when it is not whole. Messages that carry no data are left out.
  std::unique_ptr<arrow::ipc::Message> Next();

  /// Whether everything has come and was given out.
  bool complete() const { return end_ && next_ == *end_; }
  /// Whether all metadata has come, the end included.
  bool metadata_complete() const { return end_ && metadata_count_ == *end_; }

  /// Whether the stream ended before its schema: the server says elsewhere why, or does not say.
  bool refused() const { return refused_; }

  /// What is missing, for people.
  std::string Missing() const;

 private:
  struct Pending {
    std::unique_ptr<arrow::ipc::Message> message;
    bool body_announced = false;
    bool has_body = false;
  };

  Pending& At(uint32_t sequence, const char* what);
  void End(uint32_t sequence);

  std::unordered_map<uint32_t, Pending> pending_;
  uint32_t next_ = 0;
  uint32_t metadata_count_ = 0;
  std::optional<uint32_t> end_;
  bool schema_seen_ = false;
  bool refused_ = false;
};

}  // namespace dissociated
