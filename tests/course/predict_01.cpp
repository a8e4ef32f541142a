// The questions of exercise 01.2: the bytes that C3 moves with the student's own block. Its loops
// (lessons/01_gemm/blocked.h) run here on numbers that count how often they are read from memory.
#include <omp.h>

#include <array>
#include <list>

#include "lessons/01_gemm/blocked.h"
#include "tests/course/predict.h"

namespace gradus::predict {

// The numbers of three matrices, n² of each, and a cache for `capacity` numbers. A full cache evicts the
// number that was least recently used. `moved`: per matrix, the bytes that were read or written back.
class Memory {
 public:
  Memory(int64_t n, int64_t capacity)
      : of_a_matrix_(n * n), capacity_(size_t(capacity)), numbers_(size_t(3 * n * n)) {}
  void use(int64_t at, bool reads, bool writes) {
    Number& number = numbers_[size_t(at)];
    if (number.cached) {
      order_.splice(order_.begin(), order_, number.place);
    } else {
      if (order_.size() == capacity_) evict();
      order_.push_front(at);
      number = {true, false, order_.begin()};
      if (reads) moved[size_t(at / of_a_matrix_)] += 4;
    }
    number.changed |= writes;
  }
  void evict() {
    Number& oldest = numbers_[size_t(order_.back())];
    if (oldest.changed) moved[size_t(order_.back() / of_a_matrix_)] += 4;
    oldest.cached = false;
    order_.pop_back();
  }
  void empty() {
    while (!order_.empty()) evict();
  }
  std::array<int64_t, 3> moved{};

 private:
  struct Number {
    bool cached = false, changed = false;
    std::list<int64_t>::iterator place = {};
  };
  int64_t of_a_matrix_;
  size_t capacity_;
  std::vector<Number> numbers_;
  std::list<int64_t> order_;  // the numbers in the cache, the most recently used first
};

struct Watched {  // one number, whose value does not matter
  Memory* memory;
  int64_t at;
  operator float() const { return memory->use(at, true, false), 0.0f; }
  void operator+=(float) const { memory->use(at, true, true); }
  void operator=(float) const { memory->use(at, false, true); }
};
struct WatchedPointer {
  using iterator_category = std::forward_iterator_tag;
  using value_type = float;
  using difference_type = int64_t;
  using pointer = void;
  using reference = Watched;
  Watched operator[](int64_t i) const { return {memory, at + i}; }
  Watched operator*() const { return {memory, at}; }
  WatchedPointer operator+(int64_t i) const { return {memory, at + i}; }
  WatchedPointer& operator++() { return ++at, *this; }
  bool operator==(const WatchedPointer& other) const { return at == other.at; }
  Memory* memory;
  int64_t at;
};

struct Product {
  int64_t n, block, cache;  // cache: its capacity in numbers
};

static Product own_product(const std::string& student) {
  Own own(student, "01.2");
  const int64_t block = own.between(6, 12);
  return {block * own.between(12, 16), block, 5 * block * block};
}

// Bytes of A, B and C that move between the cache and memory.
static std::array<int64_t, 3> moved_by(const Product& p) {
  omp_set_num_threads(1);
  Memory memory(p.n, p.cache);
  const auto matrix = [&](int64_t i) { return WatchedPointer{&memory, i * p.n * p.n}; };
  blocked(p.n, p.block, matrix(0), matrix(1), matrix(2));
  memory.empty();
  return memory.moved;
}

static Quiz quiz(const std::string& student) {
  const Product p = own_product(student);
  std::ostringstream setting;
  setting << "Your product: n = " << p.n << ", fp32, C3 with blocks of " << p.block << " x " << p.block
          << " on one core, whose cache holds " << p.cache
          << " numbers (five blocks) and, when it is full, evicts the number that was least recently used.";
  const double flops = 2.0 * double(p.n) * double(p.n) * double(p.n);
  return {setting.str(),
          {{"01.2", "bytes_B", "how many bytes of B are read into the cache in total?",
            measured([=] { return double(moved_by(p)[1]); })},
           {"01.2", "bytes_C",
            "how many bytes of C are read into the cache or written back, in total? (10 % tolerance)",
            measured([=] { return double(moved_by(p)[2]); }, 0.1)},
           {"01.2", "intensity",
            "how many FLOPs does the product compute per byte of A, B and C that moves? (10 % tolerance)",
            measured(
                [=] {
                  const auto [a, b, c] = moved_by(p);
                  return flops / double(a + b + c);
                },
                0.1)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "01", gradus::predict::quiz); }
