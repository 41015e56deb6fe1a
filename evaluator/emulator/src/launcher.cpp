// Kernel launches: configuration check, execution of all blocks, error handling.
#include "launcher.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "heap.h"
#include "limits.h"
#include "worker.h"

EMU_THREAD_LOCAL uint3 threadIdx;
EMU_THREAD_LOCAL uint3 blockIdx;
EMU_THREAD_LOCAL dim3 blockDim;
EMU_THREAD_LOCAL dim3 gridDim;

namespace emu {

EMU_THREAD_LOCAL Worker* worker = nullptr;
EMU_THREAD_LOCAL bool orders_memory = false;

namespace {

std::mutex schedule_mutex;
Schedule current_schedule;
std::uint64_t schedule_settings = 0;  // number of schedule changes
std::atomic<std::uint64_t> launches{0};
std::atomic<std::uint64_t> library_launches{0};
std::atomic<LeftOut> left_out{LeftOut::kNothing};
std::atomic<std::size_t> dynamic_shared_limit{limits::kStaticSharedBytes};
std::mutex fault_mutex;
std::string& fault = *new std::string;  // first fault of the process; never destroyed, like the workers below

// Workers are reused for later launches, with their stacks and mappings. Never destroyed: host threads may still launch
// kernels during process exit.
class WorkerPool {
 public:
  std::unique_ptr<Worker> take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Worker>();
    std::unique_ptr<Worker> taken = std::move(free_.back());
    free_.pop_back();
    return taken;
  }

  void give_back(std::unique_ptr<Worker> worker) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(worker));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> free_;
};

WorkerPool& worker_pool() {
  static WorkerPool* const pool = new WorkerPool;
  return *pool;
}

std::mutex refusal_mutex;
std::string& refusal = *new std::string;  // first refused launch since the last question

std::string shape(const dim3& extent) {
  return "(" + std::to_string(extent.x) + ", " + std::to_string(extent.y) + ", " + std::to_string(extent.z) + ")";
}

// Records why a launch was refused: a submission may ignore the error, and every write of the kernel is missing.
cudaError_t refuse(const Kernel& kernel, cudaError_t error, const std::string& why) {
  std::lock_guard lock(refusal_mutex);
  if (refusal.empty()) {
    const std::string line = kernel.line > 0 ? " (launched in line " + std::to_string(kernel.line) + ")" : "";
    refusal = std::string("emulator[launch-refused]: kernel ") + kernel.name + line + " did not run: " + why;
  }
  return record_error(error);
}

// Configuration check of the CUDA driver. Returns the error, and describes the exceeded limit in `why`.
cudaError_t check(const Config& config, std::string* why) {
  const dim3& grid = config.grid;
  const dim3& block = config.block;
  const struct {
    const char* name;
    unsigned extent;
    unsigned most;
  } extents[] = {
      {"grid.x", grid.x, limits::kGridX},            {"grid.y", grid.y, limits::kGridYZ},
      {"grid.z", grid.z, limits::kGridYZ},           {"block.x", block.x, limits::kThreadsPerBlock},
      {"block.y", block.y, limits::kThreadsPerBlock}, {"block.z", block.z, limits::kBlockZ},
  };
  for (const auto& each : extents) {
    if (each.extent == 0 || each.extent > each.most) {
      *why = std::string(each.name) + " is " + std::to_string(each.extent) + ", allowed are 1 to " +
             std::to_string(each.most);
      return cudaErrorInvalidConfiguration;
    }
  }
  if (const unsigned threads = block.x * block.y * block.z; threads > limits::kThreadsPerBlock) {
    *why = "a block " + shape(block) + " has " + std::to_string(threads) + " threads, allowed are " +
           std::to_string(limits::kThreadsPerBlock);
    return cudaErrorInvalidConfiguration;
  }
  if (const std::size_t most = dynamic_shared_limit.load(); config.dynamic_bytes > most) {
    *why = "a block has " + std::to_string(config.dynamic_bytes) + " bytes of dynamic shared memory, allowed are " +
           std::to_string(most) + " without cudaFuncAttributeMaxDynamicSharedMemorySize";
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

// Limit of threads times bytes of dynamic shared memory of a watched block: a few milliseconds. Blocks of the two
// published kernels that race have 256 threads and at most 256 bytes.
constexpr std::size_t kMostWatched = std::size_t{1} << 22;

// One launch, shared by the workers that run its blocks.
class Execution {
 public:
  Execution(const Kernel& kernel, const Config& config, const Schedule& schedule, std::uint64_t number)
      : kernel_(kernel),
        config_(config),
        // Repeated launches of a kernel get different shuffles.
        threads_(config.block, schedule.order, schedule.seed + number),
        blocks_(config.grid, schedule.order, schedule.seed + number),
        workers_(std::min<std::uint64_t>(static_cast<std::uint64_t>(schedule.workers), blocks_.count())),
        // A single worker takes all blocks in order. Several workers take chunks, to balance the load.
        chunk_(workers_ == 1 ? blocks_.count() : std::max<std::uint64_t>(1, blocks_.count() / (workers_ * 8))) {}

  // Returns the launch bound that refused the launch, in threads per block; 0 after execution.
  long long run() {
    const HandlersInstalled handlers;
    std::vector<std::thread> helpers;
    for (std::uint64_t i = 1; i < workers_; ++i) helpers.emplace_back([this] { work(); });
    work();
    for (std::thread& helper : helpers) helper.join();
    if (thrown_) std::rethrow_exception(thrown_);
    return broken_bound_.load();
  }

 private:
  // Runs blocks on this OS thread until no blocks remain, or until a block of any worker fails or is refused.
  void work() {
    try {
      std::unique_ptr<Worker> own = worker_pool().take();
      const struct Busy {
        explicit Busy(Worker* own) { worker = own; }
        ~Busy() { worker = nullptr; }
      } busy(own.get());
      blockDim = config_.block;
      gridDim = config_.grid;
      own->kernel = &kernel_;
      own->broken_bound = 0;
      own->shared.begin_launch(config_.dynamic_bytes);
      own->waiting_block = kernel_.waits ? &own->block : nullptr;
      if (kernel_.waits) own->block.begin_launch(kernel_, threads_);
      own->faults.guard([](void* self) { static_cast<Execution*>(self)->run_blocks(); }, this);
      // Skipped after an error: the kernel's damage around shared memory must not be reported again.
      worker_pool().give_back(std::move(own));
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!thrown_) thrown_ = std::current_exception();
      failed_ = true;
    }
  }

  void run_blocks() {
    for (;;) {
      const std::uint64_t first = taken_.fetch_add(chunk_);
      if (first >= blocks_.count()) return;
      const std::uint64_t last = std::min(first + chunk_, blocks_.count());
      std::uint64_t rank = blocks_.rank_at(first);
      for (std::uint64_t turn = first; turn != last && !failed_.load(std::memory_order_relaxed); ++turn) {
        blockIdx = blocks_.index(rank);
        run_block(*worker, turn == 0);
        rank = blocks_.next(rank);
      }
    }
  }

  void run_block(Worker& own, bool is_first) {
    own.shared.begin_block();
    if (kernel_.waits) {
      own.block.run();
    } else {
      const uint3* next = threads_.indices.data();
      const uint3* const last = next + threads_.indices.size();
      const std::size_t work = config_.dynamic_bytes * threads_.indices.size();
      if (is_first && work != 0 && work <= kMostWatched) next = run_watched(own, next, last);
      if (next != last) kernel_.run(kernel_.closure, next, last);
    }
    if (const std::string damage = own.shared.damage(); !damage.empty()) fail_in_block("shared-out-of-bounds", damage);
    if (own.broken_bound != 0) {
      broken_bound_ = own.broken_bound;
      failed_ = true;
    }
  }

  // Runs the threads of the first block one by one. They wait for nothing: where two write different values to the same
  // shared memory, a thread may read the other's. Returns the first thread not run, after an atomic operation or a fence.
  const uint3* run_watched(Worker& own, const uint3* next, const uint3* last) {
    orders_memory = false;
    own.shared.watch();
    while (next != last && !orders_memory) {
      kernel_.run(kernel_.closure, next, next + 1);
      ++next;
      if (own.shared.is_written_twice() && !orders_memory) {
        fail_in_block("shared-race", "two threads write the same shared memory, and the kernel has no barrier");
      }
    }
    return next;
  }

  const Kernel& kernel_;
  const Config& config_;
  const ThreadOrder threads_;
  const BlockOrder blocks_;
  const std::uint64_t workers_;
  const std::uint64_t chunk_;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> failed_{false};
  std::atomic<long long> broken_bound_{0};
  std::mutex mutex_;
  std::exception_ptr thrown_;
};

// Records the first fault. The caller may catch the exception, but on a GPU the context would be lost.
void keep_fault(const std::string& message) {
  std::lock_guard lock(fault_mutex);
  if (fault.empty()) fault = message;
}

// Complete launch except for recording the fault.
cudaError_t launch_blocks(const Kernel& kernel, const Config& config) {
  std::string why;
  if (const cudaError_t error = check(config, &why); error != cudaSuccess) return refuse(kernel, error, why);
  const std::uint64_t number = launches.fetch_add(1);
  // The rewriter passes a line for every launch of the submission; library headers pass 0.
  const bool of_library = kernel.line == 0 && std::strncmp(kernel.name, "cublas", 6) == 0;
  if (of_library) library_launches.fetch_add(1);
  if (left_out.load() == (of_library ? LeftOut::kLibrary : LeftOut::kOwn)) return cudaSuccess;
  Schedule schedule;
  {
    std::lock_guard lock(schedule_mutex);
    schedule = current_schedule;
  }
  if (const long long bound = Execution(kernel, config, schedule, number).run(); bound != 0) {
    launches.fetch_sub(1);
    const dim3& block = config.block;
    return refuse(kernel, cudaErrorInvalidValue,
                  "a block " + shape(block) + " has " + std::to_string(block.x * block.y * block.z) +
                      " threads, its __launch_bounds__ allow " + std::to_string(bound));
  }
  // Writes between a tensor's end and its guard page do not fault. Check the canaries now.
  if (std::string damage; heap_damage(&damage) != 0) fail_after(kernel, "illegal-access", damage);
  return cudaSuccess;
}

}  // namespace

void refuse_launch(long long bound) { worker->broken_bound = bound; }

cudaError_t run(const Kernel& kernel, const Config& config) {
  if (worker != nullptr) fail("unsupported", "a kernel that launches kernels");
  try {
    return launch_blocks(kernel, config);
  } catch (const KernelError& error) {
    keep_fault(error.what());
    throw;
  }
}

std::string first_fault() {
  std::lock_guard lock(fault_mutex);
  return fault;
}

std::string take_refusal() {
  std::lock_guard lock(refusal_mutex);
  return std::exchange(refusal, {});
}

void set_schedule(const Schedule& schedule) {
  std::lock_guard lock(schedule_mutex);
  current_schedule = schedule;
  ++schedule_settings;
}

std::uint64_t schedule_setting_count() {
  std::lock_guard lock(schedule_mutex);
  return schedule_settings;
}

void leave_out(LeftOut what) { left_out.store(what); }

std::uint64_t launch_count() { return launches.load(); }
std::uint64_t library_launch_count() { return library_launches.load(); }

void allow_dynamic_shared(std::size_t bytes) {
  std::size_t before = dynamic_shared_limit.load();
  while (before < bytes && !dynamic_shared_limit.compare_exchange_weak(before, bytes)) {
  }
}

}  // namespace emu
