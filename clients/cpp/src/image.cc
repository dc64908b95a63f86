#include "image.h"

#include <cstring>

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>

#include "joiner.h"

namespace dissociated {
namespace {

using arrow::ipc::IpcPayload;
using arrow::ipc::MessageType;

constexpr size_t kAlignment = 64;

/// Collects what a stream writer would write.
class Collector : public arrow::ipc::internal::IpcPayloadWriter {
 public:
  explicit Collector(Image* image) : image_(image) {}

  arrow::Status WritePayload(const IpcPayload& payload) override {
    static const auto kZeros = std::make_shared<arrow::Buffer>(std::string_view("\0\0\0\0\0\0\0", 7));
    ImageMessage message{payload.metadata, payload.type != MessageType::SCHEMA,
                         static_cast<uint64_t>(payload.body_length), {}, {}};
    for (const auto& buffer : payload.body_buffers) {
      if (buffer == nullptr || buffer->size() == 0) {
        continue;
      }
      message.parts.push_back(buffer);
      if (const int64_t rest = buffer->size() % 8; rest != 0) {
        message.parts.push_back(arrow::SliceBuffer(kZeros, 0, 8 - rest));
      }
    }
    image_->messages.push_back(std::move(message));
    return arrow::Status::OK();
  }

  arrow::Status Close() override { return arrow::Status::OK(); }

 private:
  Image* image_;
};

std::shared_ptr<arrow::RecordBatchReader> OpenFile(const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  auto reader = arrow::ipc::RecordBatchFileReader::Open(file);
  if (reader.ok()) {
    auto batches = Take((*reader)->ToRecordBatches(), "file not readable");
    return Take(arrow::RecordBatchReader::Make(batches, (*reader)->schema()), "file not readable");
  }
  Check(file->Seek(0), "file not readable");
  return Take(arrow::ipc::RecordBatchStreamReader::Open(file.get()), "neither an Arrow file nor a stream");
}

}  // namespace

Image Image::Load(const std::string& path) {
  auto file = Take(arrow::io::ReadableFile::Open(path), "file not opened");
  auto reader = OpenFile(file);
  Image image;
  image.schema = reader->schema();
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.unify_dictionaries = false;
  auto writer = Take(
      arrow::ipc::internal::OpenRecordBatchWriter(std::make_unique<Collector>(&image), image.schema, options),
      "stream not written");
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    Check(reader->ReadNext(&batch), "file not readable");
    if (batch == nullptr) {
      break;
    }
    Check(writer->WriteRecordBatch(*batch), "stream not written");
    image.rows += batch->num_rows();
    ++image.batches;
  }
  // A stream without batches still has its schema, which the writer would send with its end.
  Check(writer->Close(), "stream not written");
  return image;
}

size_t Image::BytesToPlace() const {
  size_t size = kAlignment;
  for (const ImageMessage& message : messages) {
    size += (message.body_length + kAlignment - 1) / kAlignment * kAlignment;
  }
  return size;
}

void Image::Place(uint8_t* memory) {
  for (ImageMessage& message : messages) {
    if (!message.has_body) {
      continue;
    }
    uint8_t* end = memory;
    for (const auto& part : message.parts) {
      std::memcpy(end, part->data(), static_cast<size_t>(part->size()));
      end += part->size();
    }
    const auto head = Take(arrow::ipc::Message::Open(message.flatbuffer, nullptr), "message not readable");
    for (const wire::Range& range : BuffersOf(*head)) {
      const bool empty = range.length == 0;
      message.placed.push_back({empty ? 0 : reinterpret_cast<uint64_t>(memory) + range.address, range.length});
    }
    memory += (message.body_length + kAlignment - 1) / kAlignment * kAlignment;
  }
}

}  // namespace dissociated
