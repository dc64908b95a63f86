#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/ipc/message.h>

#include "joiner.h"
#include "location.h"
#include "ucx.h"

namespace dissociated {

/// What a client can do wrong on purpose, so that servers can be tested against it.
enum class ClientFault {
  kNone,
  kConnectOnly,        ///< never asks
  kNeverReceives,      ///< asks, and looks at nothing that comes
  kGarbageWantData,    ///< asks with 4096 bytes of nothing
  kTruncatedWantData,  ///< asks with no bytes
  kLongWantData,       ///< asks with 2 MiB
  kUnknownTag,         ///< asks with a tag that the server does not know
  kDoubleWantData,     ///< asks twice
  kMetadataOnly,       ///< of a pair, asks only for the metadata
  kDieMidway,          ///< kill -9 behind the first batch
  kCloseMidway,        ///< orderly end behind the first batch
  kGarbageFreeData,    ///< frees 7 bytes of nothing
  kUnknownFreeData,    ///< frees an address that it was never given
  kNeverFrees,         ///< keeps its leases
};

ClientFault ParseClientFault(std::string_view name);

/// The messages of one stream, as they come over UCX: from one connection, or from a pair of metadata and data. Used by
/// one thread.
class StreamReader {
 public:
  struct Options {
    std::string ticket;
    ClientFault fault = ClientFault::kNone;
    /// Longest silence of the server.
    ucx::Millis timeout{30'000};
    /// Whether to wait busily.
    bool spin = false;
  };

  /// Connects and asks. One location, or two: metadata and data.
  StreamReader(ucx::Context& context, const std::vector<Location>& locations, Options options);

  /// The next message; null at the end of a stream that is complete.
  std::unique_ptr<arrow::ipc::Message> Next();

  /// Types of the bodies so far.
  const std::set<int>& body_types() const { return body_types_; }
  /// Bytes of the bodies so far.
  int64_t body_bytes() const { return body_bytes_; }

 private:
  /// A body of which the number is known.
  struct Body {
    wire::BodyTag tag;
    ucx::Announced announced;
  };
  struct Reading {
    wire::BodyTag tag;
    std::shared_ptr<arrow::Buffer> memory;
    std::vector<ucx::Request> requests;
    std::vector<uint64_t> addresses;
    // Made for each body: a key belongs to the lanes that the connection has just then, and they change in its first
    // moments. It costs little.
    std::unique_ptr<ucx::RemoteKey> key;
  };
  struct Connection {
    Connection(ucx::Context& context, const HostAndPort& address) : worker(context), endpoint(worker, address) {}

    ucx::Worker worker;
    // Behind the endpoint's end, which still makes progress with what was not done.
    std::deque<Reading> readings;
    std::deque<std::pair<wire::Bytes, ucx::Request>> sendings;
    ucx::Endpoint endpoint;
  };

  Connection& data() { return *connections_.back(); }
  void Ask(Connection& connection, const Location& location);
  void Send(Connection& connection, uint64_t tag, wire::Bytes bytes);
  /// One round; false when nothing happened.
  bool Advance();
  bool TakeTagged(Connection& connection);
  void TakeError(Connection& connection, const ucx::Announced& message);
  wire::Bytes Receive(Connection& connection, const ucx::Announced& message, size_t longest, const char* what);
  bool StartBodies();
  void Start(const Body& body, const arrow::ipc::Message& metadata);
  bool FinishBodies();
  void Resolve(Reading& list);
  void Free(std::vector<uint64_t> addresses);
  void Wait();
  void CheckAlive();
  void Misbehave();

  const Options options_;
  std::vector<Location> locations_;
  Joiner joiner_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<Body> waiting_;
  std::set<int> body_types_;
  int64_t body_bytes_ = 0;
  ucx::Clock::time_point heard_ = ucx::Clock::now();
  size_t given_out_ = 0;
};

/// What a stream was.
struct StreamSummary {
  int64_t batches = 0;
  int64_t rows = 0;
  int64_t bytes = 0;
  std::set<int> body_types;
  double seconds = 0;
};

/// Reads a whole stream, checks every value, and writes it to `output` (an Arrow file, or a stream if the name ends in
/// .arrows) unless that is empty.
StreamSummary Get(const std::vector<Location>& locations, const StreamReader::Options& options,
                  const std::string& output);

}  // namespace dissociated
