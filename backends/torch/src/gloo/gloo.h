// What LibTorch's headers for groups of processes want of Gloo's, which its packages leave out. Nothing here is made or called by the
// shim: LibTorch's library has the code, and only names and signatures are needed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gloo {
namespace transport {
class Device;
class UnboundBuffer;
} // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string&, const std::vector<char>&) = 0;
  virtual std::vector<char> get(const std::string&) = 0;
  virtual void wait(const std::vector<std::string>&) = 0;
  virtual void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) = 0;
};
} // namespace rendezvous
} // namespace gloo
