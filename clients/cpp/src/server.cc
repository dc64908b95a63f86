#include "server.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <unordered_map>

namespace dissociated {
namespace {

using ucx::Clock;
using ucx::Millis;

/// The first two are those of the C++ reference. No body has such a tag, but bodies go the other way anyhow.
constexpr uint64_t kWantMetadata = 0xFFFFFDEADBA0BAB0;
constexpr uint64_t kWantData = 0x00000DEADBA0BAB0;
constexpr uint64_t kWantBoth = 0x00001DEADBA0BAB0;
constexpr uint64_t kFreeData = 0x0000F4EEDBA0BAB0;
constexpr uint64_t kErrorData = 0x0000EEEEFFFFFFFF;

constexpr size_t kMostConnections = 256;
constexpr size_t kMostUnsent = size_t{64} << 20;
constexpr Millis kTick{100};
constexpr Millis kLongestIdle{30'000};

/// A name that a peer sent, fit for a message.
std::string Printable(std::string name) {
  name.resize(std::min<size_t>(name.size(), 100));
  std::replace_if(name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

/// One connection, from the request to its end.
class Session {
 public:
  Session(ucx::Context& context, ucp_conn_request_h request, const std::map<std::string, std::vector<Step>>& plans,
          const std::atomic<bool>& stopping)
      : plans_(plans), stopping_(stopping), worker_(context), endpoint_(worker_, request) {}

  void Run() {
    const auto started = Clock::now();
    while (!over()) {
      const bool progress = worker_.Progress();
      // All of them before the connection is looked at: its end may have come with them.
      while (const auto message = worker_.Probe()) {
        Handle(*message);
      }
      if (!progress && !over()) {
        ucx::Worker::Wait({&worker_}, kTick);
      }
      if (!asked_ && Clock::now() - started > kLongestIdle) {
        throw Error(Code::kTimedOut, "connection given up: nothing asked");
      }
    }
    // What came before the end counts, although a stream was being sent when the end was seen. The end comes by the
    // socket and can overtake what lies in shared memory.
    do {
      for (auto message = worker_.Probe(); message; message = worker_.Probe()) {
        if (message->tag != kFreeData) {
          return;
        }
        Free(wire::ReadFreeList(Receive(*message)));
      }
    } while (endpoint_.failed() && !stopping_ && worker_.Progress());
  }

  void SendError(const Error& error) {
    if (over()) {
      return;
    }
    const wire::Bytes bytes = wire::WriteError(error);
    Finish(endpoint_.SendTagged(kErrorData, bytes));
    if (!started_ && wants_ != kWantData) {
      wire::Bytes end(wire::kPrefixLength);
      wire::Prefix{wire::MetadataType::kEndOfStream, 0}.WriteTo(end.data());
      Finish(endpoint_.SendMessage(end));
    }
    // The client closes, so that it can read why; but not forever.
    const auto end = Clock::now() + Millis(2000);
    while (!over() && Clock::now() < end) {
      if (!worker_.Progress()) {
        ucx::Worker::Wait({&worker_}, kTick);
      }
    }
  }

  std::string Report() const {
    return "sent_bytes=" + std::to_string(sent_bytes_) + " leases=" + std::to_string(given_) +
           " freed=" + std::to_string(freed_) + " unknown_frees=" + std::to_string(unknown_);
  }

 private:
  struct Unsent {
    size_t size;
    std::vector<ucp_dt_iov_t> parts;
    ucx::Request request;
  };

  bool over() const { return closed_ || endpoint_.failed() || stopping_; }

  /// Waits for a request. What is small is complete also on a connection that has ended.
  void Finish(const ucx::Request& request) {
    while (!request.done() && !over()) {
      if (!worker_.Progress()) {
        ucx::Worker::Wait({&worker_}, kTick);
      }
    }
  }

  wire::Bytes Receive(const ucx::Announced& message) {
    if (message.length > wire::kLongestRequest) {
      Violation("request refused: too long, length=" + std::to_string(message.length));
    }
    wire::Bytes bytes(message.length);
    Finish(worker_.Receive(message, bytes.data()));
    return bytes;
  }

  void Handle(const ucx::Announced& message) {
    const wire::Bytes bytes = Receive(message);
    switch (message.tag) {
      case kWantMetadata:
      case kWantData:
      case kWantBoth:
        return Stream(message.tag, std::string(bytes.begin(), bytes.end()));
      case kFreeData:
        return Free(wire::ReadFreeList(bytes));
      default:
        Violation("message refused: unknown tag=" + std::to_string(message.tag));
    }
  }

  void Free(const std::vector<uint64_t>& addresses) {
    for (const uint64_t address : addresses) {
      const auto lease = leases_.find(address);
      if (lease == leases_.end()) {
        ++unknown_;
        continue;
      }
      ++freed_;
      if (--lease->second == 0) {
        leases_.erase(lease);
      }
    }
  }

  void Stream(uint64_t want, const std::string& name) {
    if (asked_) {
      Violation("request refused: one stream per connection");
    }
    asked_ = true;
    wants_ = want;
    const auto plan = plans_.find(name);
    if (plan == plans_.end()) {
      throw Error(Code::kNotFound, "no such stream: name=" + Printable(name));
    }
    for (const Step& step : plan->second) {
      const bool metadata = step.kind == Step::Kind::kMetadata;
      const bool body = step.kind == Step::Kind::kBody;
      if (over() || (want == kWantMetadata && body) || (want == kWantData && metadata)) {
        continue;
      }
      Take(step);
      if (step.kind == Step::Kind::kSilence) {
        return;
      }
    }
    Throttle(0);
  }

  void Take(const Step& step) {
    started_ = true;
    switch (step.kind) {
      case Step::Kind::kMetadata:
        Push({step.bytes.size(), {}, endpoint_.SendMessage(step.bytes)});
        break;
      case Step::Kind::kBody:
        SendBody(step);
        break;
      case Step::Kind::kError:
        Push({step.bytes.size(), {}, endpoint_.SendTagged(kErrorData, step.bytes)});
        break;
      case Step::Kind::kSilence:
        break;
      case Step::Kind::kDeath:
        Throttle(0);
        std::raise(SIGKILL);
        break;
      case Step::Kind::kClose:
        Throttle(0);
        closed_ = true;
        break;
    }
    Throttle(kMostUnsent);
  }

  Unsent& Push(Unsent unsent) {
    sent_bytes_ += unsent.size;
    unsent_size_ += unsent.size;
    return unsent_.emplace_back(std::move(unsent));
  }

  void SendBody(const Step& step) {
    for (const uint64_t address : step.leases) {
      ++leases_[address];
      ++given_;
    }
    Unsent body{step.bytes.size(), {}, {}};
    for (const auto& part : step.parts) {
      body.parts.push_back({const_cast<uint8_t*>(part->data()), static_cast<size_t>(part->size())});
      body.size += static_cast<size_t>(part->size());
    }
    Unsent& last = Push(std::move(body));
    last.request = last.parts.empty() ? endpoint_.SendTagged(step.tag, step.bytes)
                                      : endpoint_.SendTagged(step.tag, last.parts);
  }

  /// Waits until no more than that is under way.
  void Throttle(size_t most) {
    while (!unsent_.empty() && !over()) {
      if (unsent_.front().request.done()) {
        unsent_size_ -= unsent_.front().size;
        unsent_.pop_front();
      } else if (unsent_size_ <= most && most > 0) {
        return;
      } else if (!worker_.Progress()) {
        ucx::Worker::Wait({&worker_}, kTick);
      }
    }
  }

  const std::map<std::string, std::vector<Step>>& plans_;
  const std::atomic<bool>& stopping_;
  ucx::Worker worker_;
  // Behind the endpoint's end, which still makes progress with what was not sent.
  std::deque<Unsent> unsent_;
  ucx::Endpoint endpoint_;
  size_t unsent_size_ = 0;
  std::unordered_map<uint64_t, size_t> leases_;
  uint64_t wants_ = 0;
  bool asked_ = false;
  bool started_ = false;
  bool closed_ = false;
  size_t sent_bytes_ = 0;
  size_t given_ = 0;
  size_t freed_ = 0;
  size_t unknown_ = 0;
};

}  // namespace

Server::Server(Options options, std::map<std::string, Image> images)
    : options_(std::move(options)),
      images_(std::move(images)),
      context_(options_.listen),
      worker_(context_),
      listener_(worker_, options_.listen, [this](ucp_conn_request_h request) { requests_.push_back(request); }) {
  if (options_.by_reference) {
    size_t size = 0;
    for (const auto& [name, image] : images_) {
      size += image.BytesToPlace();
    }
    memory_ = std::make_unique<ucx::SharedMemory>(context_, size);
    uint8_t* next = memory_->data();
    for (auto& [name, image] : images_) {
      image.Place(next);
      next += image.BytesToPlace();
    }
  }
  for (const auto& [name, image] : images_) {
    plans_.emplace(name, MakePlan(image, options_.by_reference, options_.fault));
  }
}

Server::~Server() {
  stopping_ = true;
  for (Connection& connection : connections_) {
    connection.thread.join();
  }
}

std::string Server::LocationOf(uint64_t want_data) const {
  std::vector<std::pair<std::string, std::string>> more;
  if (memory_ && want_data != kWantMetadata) {
    more.emplace_back("free_data", std::to_string(kFreeData));
    more.emplace_back("remote_handle", Base64(memory_->key()));
  }
  more.emplace_back("error_data", std::to_string(kErrorData));
  return Location::Ucx(HostAndPort{options_.listen.host, listener_.port()}.ToString(), want_data, more);
}

std::vector<std::string> Server::PairLocations() const { return {LocationOf(kWantMetadata), LocationOf(kWantData)}; }

std::vector<std::string> Server::InlineLocations() const { return {LocationOf(kWantBoth)}; }

void Server::Run(int descriptor) {
  pollfd stop{descriptor, POLLIN, 0};
  while (poll(&stop, 1, 0) == 0) {
    const bool progress = worker_.Progress();
    Accept();
    if (!progress) {
      ucx::Worker::Wait({&worker_}, kTick, descriptor);
    }
  }
}

void Server::Accept() {
  std::erase_if(connections_, [](Connection& connection) {
    if (connection.over) {
      connection.thread.join();
    }
    return connection.over.load();
  });
  for (ucp_conn_request_h request : std::exchange(requests_, {})) {
    if (connections_.size() >= kMostConnections) {
      listener_.Reject(request);
      continue;
    }
    Connection& connection = connections_.emplace_back();
    connection.thread = std::thread([this, request, &connection] {
      Serve(request);
      connection.over = true;
    });
  }
}

void Server::Serve(ucp_conn_request_h request) {
  std::string end = "closed";
  try {
    Session session(context_, request, plans_, stopping_);
    try {
      session.Run();
    } catch (const Error& e) {
      end = std::string(e.what()) + " code=" + std::string(CodeName(e.code()));
      session.SendError(e);
    }
    end += " " + session.Report();
  } catch (const std::exception& e) {
    end = e.what();
  }
  if (options_.verbose) {
    std::fprintf(stderr, "dissociated-cpp: connection ended: %s\n", end.c_str());
  }
}

}  // namespace dissociated
