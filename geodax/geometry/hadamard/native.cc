// Fast Walsh-Hadamard transform of the rows of a matrix, called by XLA through its foreign function interface.
//
// A row of 2^k numbers is cut into vectors. The butterflies between numbers of one vector are shuffles; those between
// vectors are sums and differences of registers, as many stages at a time as there are registers (a block). Long rows
// begin with the butterflies of the largest stride, so that what remains fits the cache and memory is read once.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kBlockBits = 4;  // 32 registers
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kBlockBits = 3;  // 16 registers
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kBlockBits = 4;
#else
constexpr int kVectorBytes = 16;
constexpr int kBlockBits = 3;
#endif
constexpr int64_t kWayBytes = 4096;    // lines this far apart share a set of the first cache ...
constexpr int kWayBits = 3;            // ... which holds 2^kWayBits of them
constexpr int kBlock = 1 << kBlockBits;
constexpr int64_t kBytesPerTask = 1 << 17;
constexpr int64_t kBytesForThreads = 1 << 20;

template <typename T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T>
constexpr int LaneBits() {
  int bits = 0;
  while ((1 << bits) < kLanes<T>) ++bits;
  return bits;
}

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::type;

template <typename T>
inline __attribute__((always_inline)) Vector<T> Load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

template <typename T>
inline __attribute__((always_inline)) void Store(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof(v));
}

template <typename T, int distance, int... lane>
inline __attribute__((always_inline)) Vector<T> ButterflyInVector(Vector<T> v, std::integer_sequence<int, lane...>) {
  const Vector<T> other = __builtin_shufflevector(v, v, (lane ^ distance)...);
  const Vector<T> sign = {((lane & distance) ? T(-1) : T(1))...};
  return v * sign + other;
}

// The stages with strides 1, 2, ..., 2^(bits - 1), all within one vector.
template <typename T, int bits>
inline __attribute__((always_inline)) Vector<T> WithinVector(Vector<T> v) {
  using Sequence = std::make_integer_sequence<int, kLanes<T>>;
  if constexpr (bits > 0) v = ButterflyInVector<T, 1>(v, Sequence{});
  if constexpr (bits > 1) v = ButterflyInVector<T, 2>(v, Sequence{});
  if constexpr (bits > 2) v = ButterflyInVector<T, 4>(v, Sequence{});
  if constexpr (bits > 3) v = ButterflyInVector<T, 8>(v, Sequence{});
  return v;
}

// The stages between 2^bits neighbouring registers, in each such group of `count` registers.
template <typename T, int count, int bits>
inline __attribute__((always_inline)) void BetweenVectors(Vector<T>* v) {
#pragma GCC unroll 4
  for (int stage = 0; stage < bits; ++stage) {
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) {
      if (i & (1 << stage)) continue;
      const Vector<T> a = v[i], b = v[i | (1 << stage)];
      v[i] = a + b;
      v[i | (1 << stage)] = a - b;
    }
  }
}

// `count` neighbouring vectors: lane_bits stages within each and register_bits between them, times a factor.
template <typename T, int count, int lane_bits, int register_bits>
inline __attribute__((always_inline)) void Contiguous(const T* in, T* out, T factor) {
  Vector<T> v[count];
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) v[i] = WithinVector<T, lane_bits>(Load<T>(in + i * kLanes<T>) * factor);
  BetweenVectors<T, count, register_bits>(v);
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) Store<T>(out + i * kLanes<T>, v[i]);
}

// The `bits` stages of largest stride of a row of `size` numbers, in place.
template <typename T, int bits>
void Strided(T* row, int64_t size) {
  const int64_t stride = size >> bits;
  for (int64_t at = 0; at < stride; at += kLanes<T>) {
    Vector<T> v[1 << bits];
#pragma GCC unroll 16
    for (int i = 0; i < (1 << bits); ++i) v[i] = Load<T>(row + at + i * stride);
    BetweenVectors<T, 1 << bits, bits>(v);
#pragma GCC unroll 16
    for (int i = 0; i < (1 << bits); ++i) Store<T>(row + at + i * stride, v[i]);
  }
}

// A row that is longer than a block: its parts one after the other, each while it is in the cache, then the largest
// strides. In place, since reading and writing at a distance of a power of two would contend for the same cache sets.
template <typename T>
void LongRow(const T* in, T* out, int64_t size, T factor) {
  constexpr int64_t block = kBlock * kLanes<T>;
  if (size == block) {
    Contiguous<T, kBlock, LaneBits<T>(), kBlockBits>(in, out, factor);
    return;
  }
  int bits = 1;
  while (bits < kBlockBits && (size >> (bits + 1)) >= block) ++bits;
  const int64_t stride_bytes = (size >> bits) * static_cast<int64_t>(sizeof(T));
  if (bits > kWayBits && stride_bytes >= kWayBytes) bits = kWayBits;
  const int64_t part = size >> bits;
  for (int64_t at = 0; at < size; at += part) LongRow<T>(in + at, out + at, part, factor);
  switch (bits) {
    case 1: Strided<T, 1>(out, size); break;
    case 2: Strided<T, 2>(out, size); break;
    case 3: Strided<T, 3>(out, size); break;
    default: Strided<T, kBlockBits>(out, size); break;
  }
}

template <typename T>
void ScalarRow(const T* in, T* out, int64_t size, T factor) {
  for (int64_t i = 0; i < size; ++i) out[i] = in[i] * factor;
  for (int64_t stride = 1; stride < size; stride *= 2) {
    for (int64_t i = 0; i < size; ++i) {
      if (i & stride) continue;
      const T a = out[i], b = out[i + stride];
      out[i] = a + b;
      out[i + stride] = a - b;
    }
  }
}

// Rows that are shorter than a block or as long: a block holds several, and strides beyond a row are left out.
template <typename T, int lane_bits, int register_bits>
void ShortRows(const T* in, T* out, int64_t total, int64_t size, T factor) {
  constexpr int64_t block = kBlock * kLanes<T>;
  constexpr int64_t group = (int64_t{1} << register_bits) * kLanes<T>;
  int64_t at = 0;
  for (; at + block <= total; at += block) {
    Contiguous<T, kBlock, lane_bits, register_bits>(in + at, out + at, factor);
  }
  for (; at + group <= total; at += group) {
    Contiguous<T, (1 << register_bits), lane_bits, register_bits>(in + at, out + at, factor);
  }
  for (; at < total; at += size) ScalarRow<T>(in + at, out + at, size, factor);
}

template <typename T>
void Rows(const T* in, T* out, int64_t rows, int64_t size, T factor) {
  constexpr int lane = LaneBits<T>();
  const int64_t total = rows * size;
  int bits = 0;
  while ((int64_t{1} << bits) < size) ++bits;
  if (bits < lane) {
    switch (bits) {
      case 0: ShortRows<T, 0, 0>(in, out, total, size, factor); return;
      case 1: ShortRows<T, 1, 0>(in, out, total, size, factor); return;
      case 2: ShortRows<T, 2, 0>(in, out, total, size, factor); return;
      default: ShortRows<T, 3, 0>(in, out, total, size, factor); return;
    }
  }
  switch (bits - lane) {
    case 0: ShortRows<T, lane, 0>(in, out, total, size, factor); return;
    case 1: ShortRows<T, lane, 1>(in, out, total, size, factor); return;
    case 2: ShortRows<T, lane, 2>(in, out, total, size, factor); return;
    case 3: ShortRows<T, lane, 3>(in, out, total, size, factor); return;
    default:
      for (int64_t i = 0; i < rows; ++i) LongRow<T>(in + i * size, out + i * size, size, factor);
  }
}

// Work that threads take in pieces. The calling thread works too and waits only for pieces that another thread has
// begun, so that a pool whose threads are all busy cannot block it.
struct Work {
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  int64_t count = 0;
  std::mutex mutex;
  std::condition_variable is_complete;
};

template <typename F>
void Take(Work& work, const F& piece) {
  for (int64_t i = work.next++; i < work.count; i = work.next++) {
    piece(i);
    if (++work.done == work.count) {
      std::lock_guard<std::mutex> lock(work.mutex);
      work.is_complete.notify_all();
    }
  }
}

template <typename T>
void InPieces(ffi::ThreadPool pool, const T* in, T* out, int64_t rows, int64_t size, T factor) {
  const int64_t bytes = rows * size * static_cast<int64_t>(sizeof(T));
  const int64_t threads = bytes < kBytesForThreads ? 1 : pool.num_threads();
  if (threads < 2 || rows < 2) {
    Rows<T>(in, out, rows, size, factor);
    return;
  }
  const int64_t row_bytes = size * static_cast<int64_t>(sizeof(T));
  const int64_t at_once = row_bytes < kBytesPerTask ? kBytesPerTask / row_bytes : 1;
  auto work = std::make_shared<Work>();
  work->count = (rows + at_once - 1) / at_once;
  const auto piece = [=](int64_t i) {
    const int64_t first = i * at_once;
    const int64_t count = first + at_once < rows ? at_once : rows - first;
    Rows<T>(in + first * size, out + first * size, count, size, factor);
  };
  const int64_t helpers = threads - 1 < work->count - 1 ? threads - 1 : work->count - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([work, piece] { Take(*work, piece); });
  Take(*work, piece);
  std::unique_lock<std::mutex> lock(work->mutex);
  work->is_complete.wait(lock, [&] { return work->done == work->count; });
}

template <ffi::DataType type>
ffi::Error Transform(ffi::ThreadPool pool, ffi::Buffer<type> x, double factor, ffi::ResultBuffer<type> y) {
  using T = ffi::NativeType<type>;
  const auto shape = x.dimensions();
  if (shape.size() == 0) return ffi::Error::InvalidArgument("fwht: expected rows, found a scalar");
  const int64_t size = shape.back();
  if (size <= 0 || (size & (size - 1))) return ffi::Error::InvalidArgument("fwht: rows must have 2^k entries");
  const int64_t rows = static_cast<int64_t>(x.element_count()) / size;
  InPieces<T>(pool, x.typed_data(), y->typed_data(), rows, size, static_cast<T>(factor));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    GeodaxFwhtF32, Transform<ffi::F32>,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<ffi::F32>>().Attr<double>("factor").Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    GeodaxFwhtF64, Transform<ffi::F64>,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<ffi::F64>>().Attr<double>("factor").Ret<ffi::Buffer<ffi::F64>>());
