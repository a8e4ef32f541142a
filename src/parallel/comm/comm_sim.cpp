// The Comm of a simulated rank. The last rank to come to a collective moves the data of all ranks. How a rank
// waits is in cluster.cpp, and how long communication takes is in network.cpp.
#include "src/parallel/comm/simulation.h"
#include "src/tensor/call.h"

namespace gradus {

class SimComm : public Comm {
 public:
  SimComm(Cluster& cluster, Group& group, int64_t self)
      : Comm(self, group.members, group.name), cluster_(cluster), group_(group) {}
  double seconds() override { return cluster_.clock(me()); }

 protected:
  std::unique_ptr<Work> begin(const Offer& offer) override {
    return std::make_unique<OnWait>(
        [this, what = offer.text(), meeting = meet(offer)] { wait_for(*meeting, what); });
  }
  std::unique_ptr<Comm> begin_split(const std::string& name, int64_t color) override {
    const Offer offer{.what = Collective::Split, .root = color, .name = name};
    const std::shared_ptr<Meeting> meeting = meet(offer);
    wait_for(*meeting, offer.text());
    return sim_comm(cluster_, *meeting->groups.at(color), me());
  }
  std::unique_ptr<Work> begin_send(const Transfer& s) override {
    const int64_t to = members()[size_t(s.rank)];
    cluster_.let_others_catch_up(me());
    Mailbox& mail = cluster_.mail[Address(group_.number, me(), to, s.tag)];
    const bool nothing = s.tag == kAllToAll && (to == me() || s.x.numel() == 0);
    const double seconds =
        nothing ? 0 : message_seconds(cluster_.args.network, me(), to, double(s.x.bytes()));
    Message m{.bytes = {}, .numel = s.x.numel(), .dtype = s.x.dtype(), .seconds = seconds};
    if (s.x.device().has_data()) m.bytes.assign(s.x.in().as<char>(), s.x.in().as<char>() + s.x.bytes());
    cluster_.post(me(), to, mail.messages.emplace(mail.sent++, std::move(m)).first->second);
    return std::make_unique<OnWait>(nullptr);
  }
  std::unique_ptr<Work> begin_recv(const Transfer& r) override {
    Mailbox& mail = cluster_.mail[Address(group_.number, members()[size_t(r.rank)], me(), r.tag)];
    return std::make_unique<OnWait>([this, &mail, r, number = mail.asked++] {
      const std::string what = recv_text(r);
      const auto sent = [&]() -> std::optional<double> {
        if (mail.sent <= number) return {};
        return mail.messages.at(number).sent;
      };
      cluster_.wait(me(), what, sent);
      const Message& m = mail.messages.at(number);
      cluster_.deliver(me(), m.began);
      cluster_.advance(me(), *m.arrived);
      take(r, what, m.numel, m.dtype, m.bytes);
      mail.messages.erase(number);
    });
  }

 private:
  int64_t me() const { return members()[size_t(rank())]; }  // this rank's number in the cluster
  std::shared_ptr<Meeting> meet(const Offer& offer) { return cluster_.meet(group_, rank(), offer, where()); }
  void wait_for(const Meeting& m, const std::string& what) {
    cluster_.wait(me(), what + where(), [&m] { return m.over ? std::optional(m.end) : std::nullopt; });
  }

  Cluster& cluster_;
  Group& group_;
};

std::unique_ptr<Comm> sim_comm(Cluster& cluster, Group& group, int64_t self) {
  return std::make_unique<SimComm>(cluster, group, self);
}

static void copy(const Tensor& from, int64_t first, const Tensor& to, int64_t at, int64_t n) {
  Tensor target = to;
  Device& device = target.device();
  const CBuf x = from.in().from(first);
  const Out y = target.set().from(at);
  if (x.p != y.p) device.copy_in(y.p, x.p, n * size_of(x.t));
}

// to[at + i] <- the sum of all ranks' x[part.begin + i], added in rank order, or the largest of them.
static void reduce_part(Tensor& sum, const std::vector<std::optional<Offer>>& offers, Part part, Tensor to,
                        int64_t at) {
  for (int64_t done = 0; done < part.count; done += kPiece) {
    const int64_t n = std::min(kPiece, part.count - done);
    for (size_t r = 0; r < offers.size(); ++r)
      fold(sum, offers[r]->x.in().from(part.begin + done), n, offers[r]->what, r == 0);
    be(sum).cast(sum.device().ctx(), n, sum.in(), to.set().from(at + done));
  }
}

void move_data(Cluster& cluster, const Group& group, const std::vector<std::optional<Offer>>& offers) {
  const int64_t ranks = int64_t(offers.size()), n = offers[0]->numel();
  const Collective what = offers[0]->what;
  if (!cluster.ranks[0]->context.device.has_data()) return;
  for (int64_t r = 0; r < ranks && n > 0; ++r) {
    const Offer& o = *offers[size_t(r)];
    const Part part = part_of(n, r, ranks);
    SimRank& owner = *cluster.ranks[size_t(group.members[size_t(r)])];
    std::vector<Context*> its_own{&owner.context};
    const ContextsOf only(its_own);  // hides the other ranks, whose tensors are read and written
    Tensor& sum = owner.sum;
    if (is_all_reduce(what)) reduce_part(sum, offers, part, o.x, part.begin);
    if (what == Collective::ReduceScatter) reduce_part(sum, offers, part, o.y, 0);
    for (int64_t to = 0; to < ranks; ++to) {
      if (is_all_reduce(what) && to != r)
        copy(o.x, part.begin, offers[size_t(to)]->x, part.begin, part.count);
      if (what == Collective::AllGather) copy(o.x, 0, offers[size_t(to)]->y, part.begin, part.count);
      if (what == Collective::Broadcast && r == o.root) copy(o.x, 0, offers[size_t(to)]->x, 0, n);
    }
  }
}

}  // namespace gradus
