#include "joiner.h"

#include <cstring>

namespace dissociated {
namespace {

using arrow::ipc::Message;
using arrow::ipc::MessageType;

/// How far ahead of the next needed number a message may be.
constexpr uint32_t kFarthest = 65535;

std::string With(uint32_t sequence) { return ", sequence=" + std::to_string(sequence); }

/// A table of a verified flatbuffer.
class Table {
 public:
  explicit Table(const void* table) : table_(static_cast<const uint8_t*>(table)) {}

  /// The place of a field by its number, or null.
  const uint8_t* Field(size_t number) const {
    const uint8_t* layout = table_ - Load<int32_t>(table_);
    const size_t slot = 4 + 2 * number;
    const uint16_t offset = slot < Load<uint16_t>(layout) ? Load<uint16_t>(layout + slot) : uint16_t{0};
    return offset == 0 ? nullptr : table_ + offset;
  }

  template <typename T>
  static T Load(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  static const uint8_t* Follow(const uint8_t* reference) { return reference + Load<uint32_t>(reference); }

 private:
  const uint8_t* table_;
};

bool HasBody(const Message& message) {
  return message.type() == MessageType::RECORD_BATCH || message.type() == MessageType::DICTIONARY_BATCH;
}

}  // namespace

void Check(const arrow::Status& status, const char* what) {
  if (!status.ok()) {
    const Code code = status.IsIOError()       ? Code::kNotFound
                      : status.IsOutOfMemory() ? Code::kResourceExhausted
                                               : Code::kDataCorrupt;
    throw Error(code, std::string(what) + ": " + status.message());
  }
}

std::vector<wire::Range> BuffersOf(const Message& message) {
  constexpr size_t kBuffersOfRecordBatch = 2;
  constexpr size_t kDataOfDictionaryBatch = 1;
  Table batch(message.header());
  if (message.type() == MessageType::DICTIONARY_BATCH) {
    const uint8_t* data = batch.Field(kDataOfDictionaryBatch);
    if (data == nullptr) {
      Violation("dictionary refused: it has no data");
    }
    batch = Table(Table::Follow(data));
  }
  std::vector<wire::Range> out;
  if (const uint8_t* field = batch.Field(kBuffersOfRecordBatch)) {
    const uint8_t* vector = Table::Follow(field);
    const auto count = Table::Load<uint32_t>(vector);
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* buffer = vector + 4 + 16 * i;
      const wire::Range range{Table::Load<uint64_t>(buffer), Table::Load<uint64_t>(buffer + 8)};
      const auto body = static_cast<uint64_t>(message.body_length());
      if (range.length > body || range.address > body - range.length) {
        Violation("metadata refused: a buffer lies outside the body, buffer=" + std::to_string(i));
      }
      out.push_back(range);
    }
  }
  return out;
}

Joiner::Pending& Joiner::At(uint32_t sequence, const char* what) {
  if (sequence - next_ > kFarthest || (end_ && sequence - next_ >= *end_ - next_)) {
    Violation(std::string(what) + " refused: number is a duplicate or out of range" + With(sequence) +
              " next=" + std::to_string(next_));
  }
  return pending_[sequence];
}

void Joiner::AddMetadata(const std::shared_ptr<arrow::Buffer>& message) {
  const wire::Prefix prefix =
      wire::ReadPrefix({message->data(), static_cast<size_t>(message->size())});
  if (prefix.type == wire::MetadataType::kEndOfStream) {
    End(prefix.sequence);
    return;
  }
  Pending& pending = At(prefix.sequence, "metadata");
  if (pending.message) {
    Violation("metadata refused: a duplicate" + With(prefix.sequence));
  }
  auto opened = Message::Open(arrow::SliceBuffer(message, wire::kPrefixLength), nullptr);
  if (!opened.ok()) {
    Violation("metadata refused: not an Arrow message" + With(prefix.sequence) + ": " + opened.status().message());
  }
  pending.message = std::move(opened).ValueUnsafe();
  const Message& head = *pending.message;
  // Number 0 comes again when the numbers have wrapped.
  if ((head.type() == MessageType::SCHEMA) != (prefix.sequence == 0 && !schema_seen_)) {
    Violation("metadata refused: the schema comes first, and only there" + With(prefix.sequence));
  }
  schema_seen_ = schema_seen_ || head.type() == MessageType::SCHEMA;
  if (head.body_length() < 0 || (!HasBody(head) && head.body_length() != 0)) {
    Violation("metadata refused: body length out of range" + With(prefix.sequence));
  }
  if (pending.body_announced && !HasBody(head)) {
    Violation("body refused: its metadata has none" + With(prefix.sequence));
  }
  if (HasBody(head)) {
    BuffersOf(head);
  }
  ++metadata_count_;
}

void Joiner::End(uint32_t sequence) {
  if (end_) {
    Violation("end-of-stream refused: a duplicate" + With(sequence));
  }
  for (const auto& [other, pending] : pending_) {
    if (other - next_ >= sequence - next_) {
      Violation("end-of-stream refused: a later message has come" + With(sequence) + " later=" + std::to_string(other));
    }
  }
  if (sequence == 0 && next_ == 0 && pending_.empty()) {
    refused_ = true;
    return;
  }
  if (sequence - next_ > kFarthest + 1) {
    Violation("end-of-stream refused: number out of range" + With(sequence) + " next=" + std::to_string(next_));
  }
  end_ = sequence;
}

void Joiner::ExpectBody(uint32_t sequence) {
  Pending& pending = At(sequence, "body");
  if (pending.body_announced) {
    Violation("body refused: a duplicate" + With(sequence));
  }
  if (pending.message && !HasBody(*pending.message)) {
    Violation("body refused: its metadata has none" + With(sequence));
  }
  pending.body_announced = true;
}

const Message* Joiner::MetadataOf(uint32_t sequence) const {
  const auto found = pending_.find(sequence);
  return found == pending_.end() ? nullptr : found->second.message.get();
}

void Joiner::AddBody(uint32_t sequence, std::shared_ptr<arrow::Buffer> body) {
  Pending& pending = pending_.at(sequence);
  pending.message = Take(Message::Open(pending.message->metadata(), std::move(body)), "message not readable");
  pending.has_body = true;
}

std::unique_ptr<Message> Joiner::Next() {
  while (true) {
    const auto found = pending_.find(next_);
    if (found == pending_.end() || !found->second.message ||
        (HasBody(*found->second.message) && !found->second.has_body)) {
      return nullptr;
    }
    auto message = std::move(found->second.message);
    pending_.erase(found);
    ++next_;
    if (message->type() != MessageType::NONE) {
      return message;
    }
  }
}

std::string Joiner::Missing() const {
  std::string text = "next=" + std::to_string(next_);
  const auto found = pending_.find(next_);
  if (end_) {
    text += " end=" + std::to_string(*end_);
  } else {
    text += " end=not-received";
  }
  const bool body = found != pending_.end() && found->second.message;
  return text + (complete() ? "" : body ? " missing=body" : " missing=metadata");
}

}  // namespace dissociated
