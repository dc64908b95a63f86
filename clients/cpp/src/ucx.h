#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <ucp/api/ucp.h>

#include "location.h"
#include "wire.h"

/// The part of UCX that the protocol needs. All objects are bound to the thread that made them, but for Context. They
/// must end in the reverse order of their making: requests, memory keys and endpoints before their worker, that before
/// its context.
namespace dissociated::ucx {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

/// Throws INTERNAL, or UNAVAILABLE for what a peer or the network can cause.
void Check(ucs_status_t status, const char* what);

class Context {
 public:
  /// For connections from or to that address. They must not be both of IPv4 and of IPv6.
  explicit Context(const HostAndPort& address);
  ~Context();
  Context(const Context&) = delete;

  ucp_context_h get() const { return context_; }

 private:
  ucp_context_h context_ = nullptr;
};

/// An operation under way. What it reads or writes must live until it is done.
class Request {
 public:
  Request() = default;
  /// Takes what an operation returned: nothing, an error, or a request.
  Request(ucp_worker_h worker, ucs_status_ptr_t pointer) : worker_(worker), pointer_(pointer) {}
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept;
  ~Request();

  /// UCS_INPROGRESS, UCS_OK or an error.
  ucs_status_t status() const;
  bool done() const { return status() != UCS_INPROGRESS; }

 private:
  ucp_worker_h worker_ = nullptr;
  ucs_status_ptr_t pointer_ = nullptr;
};

/// A tagged message that has been announced but not yet received.
struct Announced {
  uint64_t tag;
  size_t length;
  ucp_tag_message_h handle;
};

/// Progress, waiting, and what arrives.
class Worker {
 public:
  explicit Worker(Context& context);
  ~Worker();
  Worker(const Worker&) = delete;

  ucp_worker_h get() const { return worker_; }

  /// Does what can be done without waiting; false when that was nothing. Does nothing once the connection has failed
  /// before anything came over it: with shared memory, what the peer still said to set it up would end the process
  /// (UCX 1.18 to 1.22 take it for a connection that has all its lanes).
  bool Progress() { return (heard_ || !failed_) && ucp_worker_progress(worker_) != 0; }

  /// Its only connection has failed.
  void Fail() { failed_ = true; }

  /// Waits until one of the workers has something to do, the descriptor (if any) is readable, or the time is over.
  static void Wait(std::initializer_list<Worker*> workers, Millis longest, int descriptor = -1);

  /// The next tagged message, whatever its tag.
  std::optional<Announced> Probe();

  /// Receives it to `memory`, which has its length.
  Request Receive(const Announced& message, void* memory);

  /// The next active message with id 0. Its bytes start at an address that is 3 modulo 8, so that a flatbuffer behind
  /// the prefix is aligned.
  std::shared_ptr<arrow::Buffer> NextMessage();

 private:
  struct Incoming {
    std::shared_ptr<arrow::Buffer> bytes;
    Request request;
  };

  static ucs_status_t OnMessage(void* self, const void* header, size_t header_length, void* data, size_t length,
                                const ucp_am_recv_param_t* param);
  void Accept(void* data, size_t length, bool rendezvous);

  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  bool heard_ = false;
  bool failed_ = false;
  std::deque<Incoming> incoming_;
  std::optional<Error> refused_;
};

/// A connection. In the error mode that the C++ reference uses (none), which keeps shared memory usable.
class Endpoint {
 public:
  Endpoint(Worker& worker, const HostAndPort& address);
  Endpoint(Worker& worker, ucp_conn_request_h request);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;

  ucp_ep_h get() const { return endpoint_; }

  /// UCS_OK as long as the peer is there.
  ucs_status_t status() const { return status_; }
  bool failed() const { return status_ != UCS_OK; }

  /// Waits until the peer has taken the connection and all its lanes are there; throws when it does not. Nothing may be
  /// sent before: a peer that dies while lanes of shared memory are set up ends this process if a message waits for
  /// them (UCX sends it over a lane that could not be made).
  void AwaitConnected(Millis longest);

  Request SendTagged(uint64_t tag, wire::View bytes);
  /// The parts one behind the other; not all of them may be empty.
  Request SendTagged(uint64_t tag, std::span<const ucp_dt_iov_t> parts);
  /// Active message 0 with a reply endpoint, as the C++ reference sends metadata.
  Request SendMessage(wire::View bytes);
  Request Get(void* memory, size_t length, uint64_t address, ucp_rkey_h key);

 private:
  void Create(ucp_ep_params_t& params);

  Worker& worker_;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_t status_ = UCS_OK;
};

/// The right to read memory of the peer.
class RemoteKey {
 public:
  RemoteKey(Endpoint& endpoint, const std::string& packed);
  ~RemoteKey() { ucp_rkey_destroy(key_); }
  RemoteKey(const RemoteKey&) = delete;

  ucp_rkey_h get() const { return key_; }

 private:
  ucp_rkey_h key_ = nullptr;
};

/// Memory that peers may read.
class SharedMemory {
 public:
  SharedMemory(Context& context, size_t size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  uint8_t* data() const { return data_; }
  /// What a peer needs to read it.
  std::string key() const;

 private:
  Context& context_;
  ucp_mem_h memory_ = nullptr;
  uint8_t* data_ = nullptr;
};

/// Waits for connections.
class Listener {
 public:
  /// `accept` is called by the worker's progress.
  Listener(Worker& worker, const HostAndPort& address, std::function<void(ucp_conn_request_h)> accept);
  ~Listener() { ucp_listener_destroy(listener_); }
  Listener(const Listener&) = delete;

  void Reject(ucp_conn_request_h request) { ucp_listener_reject(listener_, request); }
  uint16_t port() const;

 private:
  std::function<void(ucp_conn_request_h)> accept_;
  ucp_listener_h listener_ = nullptr;
};

}  // namespace dissociated::ucx
