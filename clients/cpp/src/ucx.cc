#include "ucx.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace dissociated::ucx {
namespace {

constexpr unsigned kMetadataId = 0;
constexpr size_t kLongestMessage = size_t{256} << 20;
constexpr size_t kMisalignment = 8 - wire::kPrefixLength;
/// How long the end of a connection may take. Beyond that the worker's end takes it along.
constexpr Millis kLongestClose{1000};

struct AddressList {
  AddressList(const HostAndPort& address, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    const int problem = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &first);
    if (problem != 0) {
      throw Error(Code::kUnavailable, std::string("address not found: ") + gai_strerror(problem) +
                                          ", address=" + address.ToString());
    }
    for (chosen = first; chosen->ai_family != AF_INET && chosen->ai_next != nullptr;) {
      chosen = chosen->ai_next;
    }
    if (chosen->ai_family != AF_INET) {
      chosen = first;
    }
  }
  ~AddressList() { freeaddrinfo(first); }
  AddressList(const AddressList&) = delete;

  ucs_sock_addr_t get() const { return {chosen->ai_addr, chosen->ai_addrlen}; }
  bool ipv6() const { return chosen->ai_family == AF_INET6; }

  addrinfo* first = nullptr;
  /// The first one of IPv4, if there is one.
  addrinfo* chosen = nullptr;
};

ucp_request_param_t HostMemory() {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return param;
}

}  // namespace

void Check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) {
    return;
  }
  const bool ours = status == UCS_ERR_INVALID_PARAM || status == UCS_ERR_NO_MEMORY || status == UCS_ERR_UNSUPPORTED;
  throw Error(ours ? Code::kInternal : Code::kUnavailable, std::string(what) + ": " + ucs_status_string(status));
}

// ---- Context

Context::Context(const HostAndPort& address) {
  const bool ipv6 = AddressList(address, AI_PASSIVE).ipv6();
  ucp_config_t* config = nullptr;
  Check(ucp_config_read(nullptr, nullptr, &config), "UCX configuration not read");
  if (getenv("UCX_TCP_CONN_NB") == nullptr) {
    // A peer that is gone when UCX connects back to it otherwise ends this process: UCX takes away the lane at once, with
    // what it has to say over it.
    ucp_config_modify(config, "TCP_CONN_NB", "y");
  }
  if (ipv6 && getenv("UCX_TCP_AF_PRIO") == nullptr) {
    // UCX takes the IPv4 address of each network card otherwise, compares it with the peer's as if both were IPv6, and
    // reads beyond its end.
    ucp_config_modify(config, "TCP_AF_PRIO", "inet6,inet");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  const ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  Check(status, "UCX not usable");
}

Context::~Context() { ucp_cleanup(context_); }

// ---- Request

Request& Request::operator=(Request&& other) noexcept {
  std::swap(worker_, other.worker_);
  std::swap(pointer_, other.pointer_);
  return *this;
}

Request::~Request() {
  if (pointer_ != nullptr && UCS_PTR_IS_PTR(pointer_)) {
    if (!done()) {
      ucp_request_cancel(worker_, pointer_);
    }
    ucp_request_free(pointer_);
  }
}

ucs_status_t Request::status() const {
  if (pointer_ == nullptr) {
    return UCS_OK;
  }
  return UCS_PTR_IS_ERR(pointer_) ? UCS_PTR_STATUS(pointer_) : ucp_request_check_status(pointer_);
}

// ---- Worker

Worker::Worker(Context& context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  Check(ucp_worker_create(context.get(), &params, &worker_), "UCX worker not made");
  Check(ucp_worker_get_efd(worker_, &descriptor_), "UCX worker cannot be waited for");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMetadataId;
  handler.cb = &Worker::OnMessage;
  handler.arg = this;
  Check(ucp_worker_set_am_recv_handler(worker_, &handler), "UCX active messages not available");
}

Worker::~Worker() {
  incoming_.clear();
  ucp_worker_destroy(worker_);
}

void Worker::Wait(std::initializer_list<Worker*> workers, Millis longest, int descriptor) {
  std::array<pollfd, 3> polled{};
  nfds_t count = 0;
  for (Worker* worker : workers) {
    // Busy means that something came in the meantime.
    if (ucp_worker_arm(worker->worker_) != UCS_OK) {
      return;
    }
    polled.at(count++) = {worker->descriptor_, POLLIN, 0};
  }
  if (descriptor >= 0) {
    polled.at(count++) = {descriptor, POLLIN, 0};
  }
  poll(polled.data(), count, static_cast<int>(longest.count()));
}

std::optional<Announced> Worker::Probe() {
  ucp_tag_recv_info_t info{};
  ucp_tag_message_h handle = ucp_tag_probe_nb(worker_, 0, 0, 1, &info);
  if (handle == nullptr) {
    return std::nullopt;
  }
  heard_ = true;
  return Announced{info.sender_tag, info.length, handle};
}

Request Worker::Receive(const Announced& message, void* memory) {
  const ucp_request_param_t param = HostMemory();
  return {worker_, ucp_tag_msg_recv_nbx(worker_, memory, message.length, message.handle, &param)};
}

std::shared_ptr<arrow::Buffer> Worker::NextMessage() {
  if (!incoming_.empty() && incoming_.front().request.done()) {
    // Messages by rendezvous complete out of order; the reader sorts by number anyway.
    Incoming first = std::move(incoming_.front());
    incoming_.pop_front();
    Check(first.request.status(), "metadata message not received");
    return first.bytes;
  }
  if (refused_) {
    throw *refused_;
  }
  return nullptr;
}

ucs_status_t Worker::OnMessage(void* self, const void*, size_t, void* data, size_t length,
                               const ucp_am_recv_param_t* param) {
  auto* worker = static_cast<Worker*>(self);
  worker->heard_ = true;
  try {
    worker->Accept(data, length, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  } catch (const Error& e) {
    worker->refused_ = e;
  } catch (const std::exception& e) {
    worker->refused_ = Error(Code::kInternal, e.what());
  }
  return UCS_OK;
}

void Worker::Accept(void* data, size_t length, bool rendezvous) {
  if (length > kLongestMessage) {
    Violation("metadata message refused: too long, length=" + std::to_string(length));
  }
  auto memory = arrow::AllocateBuffer(static_cast<int64_t>(kMisalignment + length));
  if (!memory.ok()) {
    throw Error(Code::kResourceExhausted, memory.status().message());
  }
  std::shared_ptr<arrow::Buffer> whole = std::move(memory).ValueUnsafe();
  uint8_t* target = whole->mutable_data() + kMisalignment;
  Request request;
  if (rendezvous) {
    const ucp_request_param_t param = HostMemory();
    request = {worker_, ucp_am_recv_data_nbx(worker_, data, target, length, &param)};
  } else if (length > 0) {
    // The bytes are gone when this returns.
    std::memcpy(target, data, length);
  }
  incoming_.push_back({arrow::SliceBuffer(whole, kMisalignment), std::move(request)});
}

// ---- Endpoint

Endpoint::Endpoint(Worker& worker, const HostAndPort& address) : worker_(worker) {
  const AddressList addresses(address, 0);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = addresses.get();
  Create(params);
}

Endpoint::Endpoint(Worker& worker, ucp_conn_request_h request) : worker_(worker) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  Create(params);
}

void Endpoint::Create(ucp_ep_params_t& params) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_handler.arg = this;
  params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
    auto* endpoint = static_cast<Endpoint*>(self);
    endpoint->status_ = status;
    endpoint->worker_.Fail();
  };
  Check(ucp_ep_create(worker_.get(), &params, &endpoint_), "connection not made");
}

void Endpoint::AwaitConnected(Millis longest) {
  const ucp_request_param_t param{};
  const Request flush(worker_.get(), ucp_ep_flush_nbx(endpoint_, &param));
  const auto end = Clock::now() + longest;
  while (!flush.done() && !failed()) {
    if (Clock::now() > end) {
      throw Error(Code::kTimedOut, "not connected: the server does not answer");
    }
    if (!worker_.Progress()) {
      Worker::Wait({&worker_}, Millis(10));
    }
  }
  if (failed() || flush.status() != UCS_OK) {
    throw Error(Code::kUnavailable,
                std::string("not connected: ") + ucs_status_string(failed() ? status_ : flush.status()));
  }
}

Endpoint::~Endpoint() {
  if (failed()) {
    // The worker takes it along.
    return;
  }
  ucp_request_param_t param{};
  Request closing(worker_.get(), ucp_ep_close_nbx(endpoint_, &param));
  const auto end = Clock::now() + kLongestClose;
  while (!closing.done() && Clock::now() < end) {
    if (!worker_.Progress()) {
      Worker::Wait({&worker_}, Millis(10));
    }
  }
}

Request Endpoint::SendTagged(uint64_t tag, wire::View bytes) {
  const ucp_request_param_t param = HostMemory();
  return {worker_.get(), ucp_tag_send_nbx(endpoint_, bytes.data(), bytes.size(), tag, &param)};
}

Request Endpoint::SendTagged(uint64_t tag, std::span<const ucp_dt_iov_t> parts) {
  ucp_request_param_t param = HostMemory();
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  param.datatype = ucp_dt_make_iov();
  return {worker_.get(), ucp_tag_send_nbx(endpoint_, parts.data(), parts.size(), tag, &param)};
}

Request Endpoint::SendMessage(wire::View bytes) {
  ucp_request_param_t param = HostMemory();
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_REPLY;
  return {worker_.get(), ucp_am_send_nbx(endpoint_, kMetadataId, nullptr, 0, bytes.data(), bytes.size(), &param)};
}

Request Endpoint::Get(void* memory, size_t length, uint64_t address, ucp_rkey_h key) {
  const ucp_request_param_t param = HostMemory();
  return {worker_.get(), ucp_get_nbx(endpoint_, memory, length, address, key, &param)};
}

// ---- Memory

RemoteKey::RemoteKey(Endpoint& endpoint, const std::string& packed) {
  Check(ucp_ep_rkey_unpack(endpoint.get(), packed.data(), &key_), "remote_handle not usable");
}

SharedMemory::SharedMemory(Context& context, size_t size) : context_(context) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = size;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  Check(ucp_mem_map(context.get(), &params, &memory_), "memory not registered");
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  Check(ucp_mem_query(memory_, &attributes), "memory not found");
  data_ = static_cast<uint8_t*>(attributes.address);
}

SharedMemory::~SharedMemory() { ucp_mem_unmap(context_.get(), memory_); }

std::string SharedMemory::key() const {
  void* packed = nullptr;
  size_t size = 0;
  Check(ucp_rkey_pack(context_.get(), memory_, &packed, &size), "memory cannot be read by peers");
  std::string key(static_cast<const char*>(packed), size);
  ucp_rkey_buffer_release(packed);
  return key;
}

// ---- Listener

Listener::Listener(Worker& worker, const HostAndPort& address, std::function<void(ucp_conn_request_h)> accept)
    : accept_(std::move(accept)) {
  const AddressList addresses(address, AI_PASSIVE);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = addresses.get();
  params.conn_handler.cb = [](ucp_conn_request_h request, void* self) {
    static_cast<Listener*>(self)->accept_(request);
  };
  params.conn_handler.arg = this;
  const ucs_status_t status = ucp_listener_create(worker.get(), &params, &listener_);
  Check(status, ("cannot listen on " + address.ToString()).c_str());
}

uint16_t Listener::port() const {
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  Check(ucp_listener_query(listener_, &attributes), "port not known");
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(reinterpret_cast<sockaddr*>(&attributes.sockaddr), sizeof attributes.sockaddr, nullptr, 0, port.data(),
              port.size(), NI_NUMERICSERV);
  return static_cast<uint16_t>(std::stoi(port.data()));
}

}  // namespace dissociated::ucx
