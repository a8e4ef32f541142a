// Messages between the processes of a Comm. MPI's tag is the number of a message among all from its sender to
// its receiver; the caller's tag is in the header.
#pragma once
#include <list>
#include <map>

#include "src/parallel/comm/mpi/requests.h"

namespace gradus {

struct Letter {
  Header header;  // its root is the message's tag
  std::vector<char> bytes;
  Requests requests;
};

class Mail {
 public:
  // `sending`: sent messages that MPI may still read. It outlives the Comm, whose group may end before its
  // messages are received.
  Mail(MPI_Comm mpi, std::list<Letter>& sending) : sending_(sending) {
    const Alarm alarm("MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(mpi, &mpi_), "MPI_Comm_dup");
  }
  ~Mail() {
    const Alarm alarm("MPI_Comm_free");
    MPI_Comm_free(&mpi_);
  }
  Mail(const Mail&) = delete;

  void send(const Transfer& s) {
    std::erase_if(sending_, [](Letter& l) { return l.requests.over(); });
    const char* bytes = s.x.in().as<char>();
    Letter& l = sending_.emplace_back(
        Letter{{0, s.x.numel(), int64_t(s.x.dtype()), s.tag}, {bytes, bytes + s.x.bytes()}, Requests(mpi_)});
    const int64_t number = sent_[s.rank]++;
    l.requests.send(l.header.in(), Header::kNumel, s.rank, tag_of(number, kHeader));
    l.requests.send({l.bytes.data(), DType::U8}, int64_t(l.bytes.size()), s.rank, tag_of(number, kBytes));
  }

  // The number, among the messages from r.rank with r.tag, of the next one that is received.
  int64_t ask(const Transfer& r) { return asked_[{r.rank, r.tag}]++; }

  // Receives message `number`. All messages of a rank are received in the order in which they were sent, and
  // kept until they are wanted. `wait(over)` returns when over() is true.
  template <class F>
  void receive(const Transfer& r, int64_t number, const std::string& what, const F& wait) {
    const Way way{r.rank, r.tag};
    while (came_[way] <= number) {
      Letter l{{}, {}, Requests(mpi_)};
      const int64_t next = seen_[r.rank]++;
      l.requests.recv(l.header.set(), Header::kNumel, r.rank, tag_of(next, kHeader));
      wait([&] { return l.requests.over(); });
      l.bytes.resize(size_t(l.header.numel * size_of(DType(l.header.dtype))));
      l.requests.recv({l.bytes.data(), DType::U8}, int64_t(l.bytes.size()), r.rank, tag_of(next, kBytes));
      wait([&] { return l.requests.over(); });
      const Way its{r.rank, l.header.root};
      kept_[its].emplace(came_[its]++, std::move(l));
    }
    const Letter l = std::move(kept_[way].extract(number).mapped());
    take(r, what, l.header.numel, DType(l.header.dtype), l.bytes);
  }

 private:
  enum Stage : int { kHeader, kBytes };
  static int tag_of(int64_t number, Stage stage) { return int(number % (1 << 14)) * 2 + stage; }
  using Way = std::pair<int64_t, int64_t>;  // a rank that sends, and a tag

  MPI_Comm mpi_;
  std::map<int64_t, int64_t> sent_, seen_;  // numbers of messages to and from each rank
  std::map<Way, int64_t> asked_, came_;
  std::map<Way, std::map<int64_t, Letter>> kept_;  // received and not wanted yet, by number
  std::list<Letter>& sending_;
};

}  // namespace gradus
