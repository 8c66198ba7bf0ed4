// Declarations of Gloo's that LibTorch's headers for process groups need, but its packages leave out. The shim creates
// and calls nothing of this: LibTorch's library has the code, and only names and signatures are needed.
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
