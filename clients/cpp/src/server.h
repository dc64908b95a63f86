#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "image.h"
#include "plan.h"
#include "ucx.h"

namespace dissociated {

/// Serves images over UCX, each connection with a worker and a thread of its own. Both forms are always served: which
/// one a client means is told by the tag it asks with.
class Server {
 public:
  struct Options {
    HostAndPort listen{"127.0.0.1", 0};
    std::optional<ListForm> by_reference;
    ServerFault fault = ServerFault::kNone;
    bool verbose = false;
  };

  Server(Options options, std::map<std::string, Image> images);
  ~Server();

  /// Metadata and data, in this order, as the C++ reference gives them out.
  std::vector<std::string> PairLocations() const;
  /// Both on one connection.
  std::vector<std::string> InlineLocations() const;
  const std::map<std::string, Image>& images() const { return images_; }

  /// Serves until `descriptor` becomes readable.
  void Run(int descriptor);

 private:
  struct Connection {
    std::thread thread;
    std::atomic<bool> over = false;
  };

  void Accept();
  void Serve(ucp_conn_request_h request);
  std::string LocationOf(uint64_t want_data) const;

  const Options options_;
  std::map<std::string, Image> images_;
  std::map<std::string, std::vector<Step>> plans_;
  ucx::Context context_;
  std::unique_ptr<ucx::SharedMemory> memory_;
  ucx::Worker worker_;
  std::vector<ucp_conn_request_h> requests_;
  ucx::Listener listener_;
  std::list<Connection> connections_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace dissociated
