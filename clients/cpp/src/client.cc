#include "client.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>

namespace dissociated {
namespace {

using arrow::ipc::Message;
using ucx::Clock;
using ucx::Millis;

constexpr std::array<std::pair<std::string_view, ClientFault>, 14> kNames = {{
    {"none", ClientFault::kNone},
    {"connect-only", ClientFault::kConnectOnly},
    {"never-receives", ClientFault::kNeverReceives},
    {"garbage-want-data", ClientFault::kGarbageWantData},
    {"truncated-want-data", ClientFault::kTruncatedWantData},
    {"long-want-data", ClientFault::kLongWantData},
    {"unknown-tag", ClientFault::kUnknownTag},
    {"double-want-data", ClientFault::kDoubleWantData},
    {"metadata-only", ClientFault::kMetadataOnly},
    {"die-midway", ClientFault::kDieMidway},
    {"close-midway", ClientFault::kCloseMidway},
    {"garbage-free-data", ClientFault::kGarbageFreeData},
    {"unknown-free-data", ClientFault::kUnknownFreeData},
    {"never-frees", ClientFault::kNeverFrees},
}};

constexpr size_t kLongestError = size_t{64} << 10;
/// Longest message with the control tag.
constexpr size_t kLongestControl = size_t{16} << 10;
/// HELLO: kind 1, version 1, bit 0 of the flags: this client reads memory of the server's.
constexpr std::array<uint8_t, 4> kHello = {1, 1, 1, 0};
constexpr Millis kTick{100};
/// How long to wait for the reason of a refusal.
constexpr Millis kReason{500};

std::shared_ptr<arrow::Buffer> Allocate(uint64_t length) {
  return Take(arrow::AllocateBuffer(static_cast<int64_t>(length)), "no memory for a body");
}

/// The buffers of a body and of the list that says where they lie, matched: format-docs/body-message.md, type 1.
std::vector<std::pair<wire::Range, wire::Range>> Match(const std::vector<wire::Range>& buffers, uint64_t body_length,
                                                       const wire::BufferList& list) {
  std::vector<std::pair<wire::Range, wire::Range>> out;
  if (list.buffers.size() == 1 && list.buffers.size() != buffers.size() && list.buffers[0].length == body_length) {
    out.push_back({{0, body_length}, list.buffers[0]});
    return out;
  }
  const bool each = list.buffers.size() == buffers.size();
  size_t next = 0;
  for (const wire::Range& buffer : buffers) {
    if (!each && buffer.length == 0) {
      continue;
    }
    if (next == list.buffers.size() || list.buffers[next].length < buffer.length) {
      Violation("buffer list refused: it does not match the metadata, buffer=" + std::to_string(next));
    }
    out.push_back({buffer, list.buffers[next++]});
  }
  if (next != list.buffers.size()) {
    Violation("buffer list refused: it does not match the metadata, pairs=" + std::to_string(list.buffers.size()));
  }
  return out;
}

}  // namespace

ClientFault ParseClientFault(std::string_view name) {
  const auto found = std::find_if(kNames.begin(), kNames.end(), [&](auto& entry) { return entry.first == name; });
  if (found != kNames.end()) {
    return found->second;
  }
  std::string known;
  for (const auto& entry : kNames) {
    known += " " + std::string(entry.first);
  }
  throw Error(Code::kInvalidArgument, "unknown fault: " + std::string(name) + ", known:" + known);
}

// ---- Opening

StreamReader::StreamReader(ucx::Context& context, const std::vector<Location>& locations, Options options)
    : options_(std::move(options)), locations_(locations) {
  for (const Location& location : locations_) {
    connections_.push_back(std::make_unique<Connection>(context, HostAndPort::Parse(location.authority)));
    connections_.back()->endpoint.AwaitConnected(options_.timeout);
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (options_.fault != ClientFault::kConnectOnly && (i == 0 || options_.fault != ClientFault::kMetadataOnly)) {
      Ask(*connections_[i], locations_[i]);
    }
  }
}

void StreamReader::Ask(Connection& connection, const Location& location) {
  if (location.control && location.remote_handle) {
    // Only who says that it reads memory is given addresses. What such a server says besides is not listened to.
    Send(connection, *location.control, {kHello.begin(), kHello.end()});
  }
  wire::Bytes ticket(options_.ticket.begin(), options_.ticket.end());
  uint64_t tag = *location.want_data;
  switch (options_.fault) {
    case ClientFault::kGarbageWantData:
      ticket.assign(4096, 0xA5);
      break;
    case ClientFault::kTruncatedWantData:
      ticket.clear();
      break;
    case ClientFault::kLongWantData:
      ticket.assign(size_t{2} << 20, 'x');
      break;
    case ClientFault::kUnknownTag:
      ++tag;
      break;
    case ClientFault::kDoubleWantData:
      Send(connection, tag, ticket);
      break;
    default:
      break;
  }
  Send(connection, tag, std::move(ticket));
}

void StreamReader::Send(Connection& connection, uint64_t tag, wire::Bytes bytes) {
  std::erase_if(connection.sendings, [](auto& sending) { return sending.second.done(); });
  auto& sending = connection.sendings.emplace_back(std::move(bytes), ucx::Request());
  sending.second = connection.endpoint.SendTagged(tag, sending.first);
}

// ---- Reading

std::unique_ptr<Message> StreamReader::Next() {
  if (given_out_ == 0 || given_out_ == 2) {
    // Before anything is read, and with the first batch given out.
    Misbehave();
  }
  while (true) {
    if (auto message = joiner_.Next()) {
      ++given_out_;
      return message;
    }
    if (joiner_.complete()) {
      return nullptr;
    }
    if (Advance()) {
      heard_ = Clock::now();
    } else {
      CheckAlive();
      Wait();
    }
  }
}

bool StreamReader::Advance() {
  bool something = false;
  for (const auto& connection : connections_) {
    something |= connection->worker.Progress();
    something |= TakeTagged(*connection);
  }
  while (const auto message = connections_.front()->worker.NextMessage()) {
    joiner_.AddMetadata(message);
    something = true;
  }
  something |= StartBodies();
  something |= FinishBodies();
  return something;
}

bool StreamReader::TakeTagged(Connection& connection) {
  bool something = false;
  while (const auto message = connection.worker.Probe()) {
    something = true;
    bool control = false;
    for (const Location& location : locations_) {
      if (location.error_data == message->tag) {
        TakeError(connection, *message);
      }
      control |= location.control == message->tag;
    }
    if (control) {
      Receive(connection, *message, kLongestControl, "control message");
      continue;
    }
    const wire::BodyTag tag = wire::ReadBodyTag(message->tag);
    if (tag.type == wire::BodyType::kByReference && locations_.back().remote_handle.value_or("").empty()) {
      Violation("body refused: by reference, but the location has no remote_handle, sequence=" +
                std::to_string(tag.sequence));
    }
    joiner_.ExpectBody(tag.sequence);
    waiting_.push_back({tag, *message});
  }
  return something;
}

void StreamReader::TakeError(Connection& connection, const ucx::Announced& message) {
  throw wire::ReadError(Receive(connection, message, kLongestError, "error_data"));
}

/// The whole of a short message, waited for.
wire::Bytes StreamReader::Receive(Connection& connection, const ucx::Announced& message, size_t longest,
                                  const char* what) {
  if (message.length > longest) {
    Violation(std::string(what) + " refused: too long, length=" + std::to_string(message.length));
  }
  wire::Bytes bytes(message.length);
  const ucx::Request request = connection.worker.Receive(message, bytes.data());
  while (!request.done() && !connection.endpoint.failed()) {
    connection.worker.Progress();
  }
  return bytes;
}

/// Memory is taken only for bodies whose metadata says the same length.
bool StreamReader::StartBodies() {
  return std::erase_if(waiting_, [this](const Body& body) {
           const Message* metadata = joiner_.MetadataOf(body.tag.sequence);
           if (metadata != nullptr) {
             Start(body, *metadata);
           }
           return metadata != nullptr;
         }) > 0;
}

void StreamReader::Start(const Body& body, const Message& metadata) {
  const size_t length = body.announced.length;
  const bool packed = body.tag.type == wire::BodyType::kPacked;
  const size_t most = packed ? static_cast<size_t>(metadata.body_length()) : 16 + 16 * wire::kMostBuffers;
  if (packed ? length != most : length > most) {
    Violation("body refused: another length than the metadata says, sequence=" + std::to_string(body.tag.sequence) +
              " length=" + std::to_string(length) + " body_length=" + std::to_string(metadata.body_length()));
  }
  body_types_.insert(static_cast<int>(body.tag.type));
  Reading& reading = data().readings.emplace_back();
  reading.tag = body.tag;
  reading.memory = Allocate(length);
  reading.requests.push_back(data().worker.Receive(body.announced, reading.memory->mutable_data()));
}

bool StreamReader::FinishBodies() {
  auto& readings = data().readings;
  bool something = false;
  for (size_t i = 0; i < readings.size(); ++i) {
    Reading& reading = readings[i];
    if (!std::all_of(reading.requests.begin(), reading.requests.end(), [](auto& request) { return request.done(); })) {
      continue;
    }
    for (const ucx::Request& request : reading.requests) {
      ucx::Check(request.status(), "body not received");
    }
    something = true;
    if (reading.tag.type == wire::BodyType::kByReference && reading.addresses.empty()) {
      Resolve(reading);
      if (!reading.requests.empty()) {
        continue;
      }
    }
    Free(std::move(reading.addresses));
    body_bytes_ += reading.memory->size();
    joiner_.AddBody(reading.tag.sequence, std::move(reading.memory));
    readings.erase(readings.begin() + static_cast<ptrdiff_t>(i--));
  }
  return something;
}

/// Turns a list that was received into the remote reads of its buffers.
void StreamReader::Resolve(Reading& reading) {
  const Message& metadata = *joiner_.MetadataOf(reading.tag.sequence);
  const wire::BufferList list =
      wire::ReadBufferList({reading.memory->data(), static_cast<size_t>(reading.memory->size())});
  const auto length = static_cast<uint64_t>(metadata.body_length());
  const auto matched = Match(BuffersOf(metadata), length, list);
  reading.memory = Allocate(length);
  std::fill_n(reading.memory->mutable_data(), length, uint8_t{0});
  reading.requests.clear();
  reading.key = std::make_unique<ucx::RemoteKey>(data().endpoint, *locations_.back().remote_handle);
  for (const auto& [place, range] : matched) {
    if (place.length > 0) {
      reading.requests.push_back(data().endpoint.Get(reading.memory->mutable_data() + place.address, place.length,
                                                     range.address, reading.key->get()));
    }
  }
  for (const wire::Range& range : list.buffers) {
    if (range.length > 0) {
      reading.addresses.push_back(range.address);
    }
  }
}

void StreamReader::Free(std::vector<uint64_t> addresses) {
  const auto& tag = locations_.back().free_data;
  if (addresses.empty() || !tag || options_.fault == ClientFault::kNeverFrees) {
    return;
  }
  constexpr size_t kMost = 4096;
  for (size_t i = 0; i < addresses.size(); i += kMost) {
    const auto part = std::span(addresses).subspan(i, std::min(kMost, addresses.size() - i));
    Send(data(), *tag, wire::WriteFreeList(part));
  }
}

void StreamReader::CheckAlive() {
  const auto silence = Clock::now() - heard_;
  if (joiner_.refused() && silence > kReason) {
    throw Error(Code::kNotFound, "stream refused: the server ended it before its schema");
  }
  const bool metadata_gone = connections_.front()->endpoint.failed() && !joiner_.metadata_complete();
  if (metadata_gone || data().endpoint.failed()) {
    const auto& gone = metadata_gone ? *connections_.front() : data();
    throw Error(Code::kUnavailable, std::string("stream broken: ") + ucs_status_string(gone.endpoint.status()) + ", " +
                                        joiner_.Missing());
  }
  if (silence > options_.timeout) {
    throw Error(Code::kTimedOut, "stream broken: nothing heard for " +
                                     std::to_string(std::chrono::duration_cast<Millis>(silence).count()) + " ms, " +
                                     joiner_.Missing());
  }
}

void StreamReader::Wait() {
  if (options_.spin) {
    return;
  }
  if (connections_.size() == 1) {
    ucx::Worker::Wait({&data().worker}, kTick);
  } else {
    ucx::Worker::Wait({&connections_.front()->worker, &data().worker}, kTick);
  }
}

void StreamReader::Misbehave() {
  const bool started = given_out_ > 0;
  switch (options_.fault) {
    case ClientFault::kNeverReceives:
      if (!started) {
        // The question itself goes out by progress; then the process looks at nothing until it is ended.
        for (const auto end = Clock::now() + kTick; Clock::now() < end;) {
          connections_.front()->worker.Progress();
          data().worker.Progress();
        }
        poll(nullptr, 0, static_cast<int>(options_.timeout.count()));
        throw Error(Code::kTimedOut, "nothing received, on purpose");
      }
      break;
    case ClientFault::kDieMidway:
      if (started) {
        std::raise(SIGKILL);
      }
      break;
    case ClientFault::kCloseMidway:
      if (started) {
        throw Error(Code::kCancelled, "stream closed midway, on purpose");
      }
      break;
    case ClientFault::kGarbageFreeData:
      if (started) {
        Send(data(), locations_.back().free_data.value_or(0), wire::Bytes(7, 0xA5));
      }
      break;
    case ClientFault::kUnknownFreeData:
      if (started) {
        Send(data(), locations_.back().free_data.value_or(0), wire::WriteFreeList(std::array<uint64_t, 1>{0xA5A5}));
      }
      break;
    default:
      break;
  }
}

// ---- The whole stream

namespace {

/// Hands the messages to Arrow's own reader. Errors are kept, since a status would lose their code.
class Messages : public arrow::ipc::MessageReader {
 public:
  Messages(StreamReader* stream, std::optional<Error>* problem) : stream_(stream), problem_(problem) {}

  arrow::Result<std::unique_ptr<Message>> ReadNextMessage() override {
    try {
      return stream_->Next();
    } catch (const Error& e) {
      *problem_ = e;
      return arrow::Status::IOError(e.what());
    }
  }

 private:
  StreamReader* stream_;
  std::optional<Error>* problem_;
};

std::shared_ptr<arrow::ipc::RecordBatchWriter> OpenOutput(const std::string& path,
                                                          const std::shared_ptr<arrow::Schema>& schema) {
  auto file = Take(arrow::io::FileOutputStream::Open(path), "output not opened");
  // A stream can hold dictionaries that change, a file cannot.
  return path.ends_with(".arrows") ? Take(arrow::ipc::MakeStreamWriter(file, schema), "output not written")
                                   : Take(arrow::ipc::MakeFileWriter(file, schema), "output not written");
}

}  // namespace

StreamSummary Get(const std::vector<Location>& locations, const StreamReader::Options& options,
                  const std::string& output) {
  const auto started = Clock::now();
  for (const Location& location : locations) {
    if (location.scheme != "ucx" || !location.want_data) {
      throw Error(Code::kInvalidArgument, "location refused: ucx with want_data is needed, scheme=" + location.scheme);
    }
  }
  ucx::Context context(HostAndPort::Parse(locations.front().authority));
  StreamReader stream(context, locations, options);
  std::optional<Error> problem;
  const auto check = [&](const arrow::Status& status, const char* what) {
    if (problem) {
      throw *problem;
    }
    Check(status, what);
  };
  auto opened = arrow::ipc::RecordBatchStreamReader::Open(std::make_unique<Messages>(&stream, &problem));
  check(opened.status(), "stream not readable");
  const auto reader = std::move(opened).ValueUnsafe();
  const auto writer = output.empty() ? nullptr : OpenOutput(output, reader->schema());
  StreamSummary summary;
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(reader->ReadNext(&batch), "stream not readable");
    if (batch == nullptr) {
      break;
    }
    Check(batch->ValidateFull(), "batch refused");
    ++summary.batches;
    summary.rows += batch->num_rows();
    if (writer) {
      Check(writer->WriteRecordBatch(*batch), "output not written");
    }
  }
  if (writer) {
    Check(writer->Close(), "output not written");
  }
  summary.bytes = stream.body_bytes();
  summary.body_types = stream.body_types();
  summary.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  return summary;
}

}  // namespace dissociated
