// LibTorch's store and its process groups over Gloo as C functions. No exception leaves them: it becomes a message in
// memory from malloc, and the result is then 1, else 0.

#include "gloo.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

using c10d::ProcessGroupGloo;
using std::chrono::milliseconds;

namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
using Group = c10::intrusive_ptr<ProcessGroupGloo>;

template <typename F>
int guarded(char** message, F f) {
  try {
    f();
    return 0;
  } catch (const c10::Error& e) {
    *message = strdup(e.what_without_backtrace());
  } catch (const std::exception& e) {
    *message = strdup(e.what());
  } catch (...) {
    *message = strdup("an exception of an unknown kind");
  }
  return 1;
}

// A process serves one store per port until it ends, since a peer may still ask for it after a group has been dropped.
void serve(uint16_t port, milliseconds timeout) {
  static auto& mutex = *new std::mutex();
  static auto& served = *new std::map<uint16_t, Store>();
  std::lock_guard<std::mutex> lock(mutex);
  if (served.count(port) != 0) {
    return;
  }
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  served[port] = c10::make_intrusive<c10d::TCPStore>("localhost", options);
}

at::Tensor tensor(void* data, size_t len, int dtype) {
  return at::from_blob(data, {static_cast<int64_t>(len)}, at::TensorOptions().dtype(static_cast<at::ScalarType>(dtype)));
}

} // namespace

extern "C" {

const char* polygrad_gloo_version() {
  return TORCH_VERSION;
}

int polygrad_gloo_store(
    const char* host,
    uint16_t port,
    const char* prefix,
    int server,
    int64_t timeout,
    void** store,
    char** message) {
  return guarded(message, [&] {
    if (server != 0) {
      serve(port, milliseconds(timeout));
    }
    c10d::TCPStoreOptions options;
    options.port = port;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout);
    Store inner = c10::make_intrusive<c10d::TCPStore>(server != 0 ? "localhost" : host, options);
    *store = new Store(c10::make_intrusive<c10d::PrefixStore>(prefix, inner));
  });
}

void polygrad_gloo_store_free(void* store) {
  delete static_cast<Store*>(store);
}

int polygrad_gloo_store_set(void* store, const char* key, const uint8_t* value, size_t len, char** message) {
  return guarded(message, [&] { (*static_cast<Store*>(store))->set(key, std::vector<uint8_t>(value, value + len)); });
}

// The value of a key, in memory from malloc, or null if the key is not set.
int polygrad_gloo_store_get(void* store, const char* key, uint8_t** value, size_t* len, char** message) {
  return guarded(message, [&] {
    auto& inner = *static_cast<Store*>(store);
    if (!inner->check({key})) {
      return;
    }
    auto bytes = inner->get(key);
    auto* copy = static_cast<uint8_t*>(malloc(bytes.size() + 1));
    TORCH_CHECK(copy != nullptr, "no memory for a value of the store");
    memcpy(copy, bytes.data(), bytes.size());
    *value = copy;
    *len = bytes.size();
  });
}

int polygrad_gloo_group(
    void* store,
    int rank,
    int size,
    const char* interface,
    int64_t timeout,
    void** group,
    char** message) {
  return guarded(message, [&] {
    auto options = ProcessGroupGloo::Options::create(milliseconds(timeout));
    options->devices.push_back(
        interface != nullptr ? ProcessGroupGloo::createDeviceForInterface(interface)
                             : ProcessGroupGloo::createDefaultDevice());
    *group = new Group(c10::make_intrusive<ProcessGroupGloo>(*static_cast<Store*>(store), rank, size, options));
  });
}

void polygrad_gloo_group_free(void* group) {
  try {
    delete static_cast<Group*>(group);
  } catch (...) {
    // Closing a broken connection may throw.
  }
}

int polygrad_gloo_all_reduce(void* group, void* data, size_t len, int dtype, int op, char** message) {
  return guarded(message, [&] {
    std::vector<at::Tensor> tensors{tensor(data, len, dtype)};
    c10d::AllreduceOptions options;
    options.reduceOp = static_cast<c10d::ReduceOp::RedOpType>(op);
    (*static_cast<Group*>(group))->allreduce(tensors, options)->wait();
  });
}

int polygrad_gloo_all_gather(void* group, const void* own, size_t len, void* all, char** message) {
  return guarded(message, [&] {
    auto& inner = *static_cast<Group*>(group);
    auto in = tensor(const_cast<void*>(own), len, static_cast<int>(at::kByte));
    auto out = tensor(all, len * inner->getSize(), static_cast<int>(at::kByte));
    inner->_allgather_base(out, in)->wait();
  });
}

int polygrad_gloo_broadcast(void* group, void* data, size_t len, int root, char** message) {
  return guarded(message, [&] {
    std::vector<at::Tensor> tensors{tensor(data, len, static_cast<int>(at::kByte))};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    (*static_cast<Group*>(group))->broadcast(tensors, options)->wait();
  });
}

int polygrad_gloo_barrier(void* group, char** message) {
  return guarded(message, [&] { (*static_cast<Group*>(group))->barrier()->wait(); });
}

void polygrad_gloo_free(void* memory) {
  free(memory);
}
}
