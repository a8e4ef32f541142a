// The Comm of a simulated rank. Who comes last to a collective moves everybody's data. How a rank waits is in
// cluster.cpp, how long it takes in network.cpp.
#include "src/parallel/comm/simulation.h"
#include "src/tensor/call.h"

namespace gradus {

// Sums are made in pieces of so many elements, in a buffer of the rank that owns them.
constexpr int64_t kPiece = int64_t(1) << 16;

class SimComm : public Comm {
 public:
  SimComm(Cluster& cluster, int64_t rank)
      : Comm(rank, cluster.args.ranks),
        sum(current().device, {kPiece}, DType::F32, Kind::Comm, "sum of parts"),
        cluster_(cluster) {}
  double seconds() override { return cluster_.clock(rank()); }

  Tensor sum;

 protected:
  std::unique_ptr<Work> begin(const Offer& offer) override {
    return std::make_unique<OnWait>([this, what = offer.text(), meeting = cluster_.meet(rank(), offer)] {
      cluster_.wait(
          rank(), what, [&] { return meeting->over; }, [&] { return meeting->end; });
    });
  }
  std::unique_ptr<Work> begin_send(const Tensor& x, int64_t to) override {
    Mailbox& mail = cluster_.mail[{rank(), to}];
    Message m{{}, x.numel(), x.dtype(), 0};
    if (x.device().has_data()) m.bytes.assign(x.in().as<char>(), x.in().as<char>() + x.bytes());
    mail.free = std::max(mail.free, cluster_.clock(rank())) +
                message_seconds(cluster_.args.network, rank(), to, double(x.bytes()));
    m.arrives = mail.free;
    mail.messages.emplace(mail.sent++, std::move(m));
    return std::make_unique<OnWait>(nullptr);
  }
  std::unique_ptr<Work> begin_recv(const Tensor& x, int64_t from) override {
    Mailbox& mail = cluster_.mail[{from, rank()}];
    return std::make_unique<OnWait>([this, &mail, to = x, from, number = mail.asked++]() mutable {
      std::ostringstream what;
      what << "recv of " << to.numel() << " " << name_of(to.dtype()) << " from rank " << from;
      cluster_.wait(
          rank(), what.str(), [&] { return mail.sent > number; },
          [&] { return mail.messages.at(number).arrives; });
      const Message& m = mail.messages.at(number);
      check(m.numel == to.numel() && m.dtype == to.dtype(), what.str(), ": what was sent are ", m.numel, " ",
            name_of(m.dtype));
      to.device().copy_in(to.set().p, m.bytes.data(), to.bytes());
      mail.messages.erase(number);
    });
  }

 private:
  Cluster& cluster_;
};

std::unique_ptr<Comm> sim_comm(Cluster& cluster, int64_t rank) {
  return std::make_unique<SimComm>(cluster, rank);
}

static void copy(const Tensor& from, int64_t first, const Tensor& to, int64_t at, int64_t n) {
  Tensor target = to;
  Device& device = target.device();
  const CBuf x = from.in().from(first);
  const Out y = target.set().from(at);
  if (x.p != y.p) device.copy_in(y.p, x.p, n * size_of(x.t));
}

// to[at + i] <- the sum over the ranks of x[first + i], added in rank order.
static void sum_part(SimComm& owner, const std::vector<std::optional<Offer>>& offers, Part part, Tensor to,
                     int64_t at) {
  Tensor& sum = owner.sum;
  const Backend& backend = be(sum);
  for (int64_t done = 0; done < part.count; done += kPiece) {
    const int64_t n = std::min(kPiece, part.count - done);
    for (size_t r = 0; r < offers.size(); ++r)
      backend.cast(sum.device().ctx(), n, offers[r]->x.in().from(part.begin + done),
                   sum.out(r == 0 ? Write::Set : Write::Add));
    backend.cast(sum.device().ctx(), n, sum.in(), to.set().from(at + done));
  }
}

void move_data(Cluster& cluster, const std::vector<std::optional<Offer>>& offers) {
  const int64_t ranks = int64_t(offers.size()), n = offers[0]->numel();
  const Collective what = offers[0]->what;
  if (!cluster.ranks[0]->context.device.has_data()) return;
  std::vector<Context*> none;
  const ContextsOf outside(none);  // the tensors are of all ranks' contexts
  for (int64_t r = 0; r < ranks && what != Collective::Barrier; ++r) {
    const Offer& o = *offers[size_t(r)];
    const Part part = part_of(n, r, ranks);
    auto& owner = static_cast<SimComm&>(*cluster.ranks[size_t(r)]->comm);
    if (what == Collective::AllReduce) sum_part(owner, offers, part, o.x, part.begin);
    if (what == Collective::ReduceScatter) sum_part(owner, offers, part, o.y, 0);
    for (int64_t to = 0; to < ranks; ++to) {
      if (what == Collective::AllReduce && to != r)
        copy(o.x, part.begin, offers[size_t(to)]->x, part.begin, part.count);
      if (what == Collective::AllGather) copy(o.x, 0, offers[size_t(to)]->y, part.begin, part.count);
      if (what == Collective::Broadcast && r == o.root) copy(o.x, 0, offers[size_t(to)]->x, 0, n);
    }
  }
}

}  // namespace gradus
