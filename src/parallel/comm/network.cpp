#include "src/parallel/comm/network.h"

#include <map>

#include "src/core/named.h"

namespace gradus {

constexpr double kGiga = 1e9, kMicro = 1e-6;

const std::vector<Network>& published_networks() {
  // NCCL 2.20.3 (src/graph/tuning.cc, hwLat, a ring, "Simple"); 2.7.5 had 9.6 for networks.
  constexpr double nvlink = 3.4 * kMicro, pcie = 5.7 * kMicro, net = 14.0 * kMicro;
  static const std::vector<Network> networks = {
      {"nvlink2", "NVLink 2, 300 GB/s both ways: NVIDIA V100 data sheet, 2020", {nvlink, 150 * kGiga}},
      {"nvlink", "NVLink 3, 600 GB/s both ways: NVIDIA A100 data sheet, 2021", {nvlink, 300 * kGiga}},
      {"nvlink4", "NVLink 4, 900 GB/s both ways: NVIDIA H100 data sheet, 2023", {nvlink, 450 * kGiga}},
      {"pcie3", "PCI Express 3.0 x16, 8 GT/s/lane, 128 of 130 bits: PCI-SIG, 2010", {pcie, 15.75 * kGiga}},
      {"pcie", "PCI Express 4.0 x16, 16 GT/s/lane, 128 of 130 bits: PCI-SIG, 2017", {pcie, 31.5 * kGiga}},
      {"pcie5", "PCI Express 5.0 x16, 32 GT/s/lane, 128 of 130 bits: PCI-SIG, 2019", {pcie, 63 * kGiga}},
      {"infiniband400", "InfiniBand NDR, 400 Gb/s: NVIDIA ConnectX-7, 2022", {net, 50 * kGiga}},
      {"infiniband200", "InfiniBand HDR, 200 Gb/s: NVIDIA ConnectX-6, 2020", {net, 25 * kGiga}},
      {"ethernet100", "100 Gb/s Ethernet: IEEE 802.3ba, 2010", {net, 12.5 * kGiga}},
      {"ethernet10", "10 Gb/s Ethernet: IEEE 802.3ae, 2002", {net, 1.25 * kGiga}},
      {"nodes", "8 by NVLink 3, 100 Gb/s each between nodes", {nvlink, 300 * kGiga}, 8, {net, 12.5 * kGiga}},
  };
  return networks;
}

const Network& network_called(std::string_view name) { return named(name, published_networks(), "network"); }

// One pass around a ring: a reduce-scatter or an all-gather.
static double ring(const Link& link, int64_t ranks, double bytes) {
  return double(ranks - 1) * (link.latency + bytes / double(ranks) / link.bandwidth);
}

static double on_one_link(const Link& link, Collective what, int64_t ranks, double bytes) {
  switch (what) {
    case Collective::ReduceScatter:
    case Collective::AllGather: return ring(link, ranks, bytes);
    case Collective::Broadcast:
      return ranks == 1 ? 0 : double(ranks - 1) * link.latency + bytes / link.bandwidth;
    default: return 2 * ring(link, ranks, bytes);
  }
}

void check_ranks(const Network& n, int64_t ranks) {
  check(n.per_node == 0 || ranks <= n.per_node || ranks % n.per_node == 0, "network '", n.name, "': ", ranks,
        " ranks do not fill nodes of ", n.per_node, "; use at most ", n.per_node,
        " ranks, a multiple of it, or a different network");
}

double collective_seconds(const Network& n, Collective what, const std::vector<int64_t>& ranks,
                          double bytes) {
  if (what == Collective::Split) return 0;
  std::map<int64_t, int64_t> in_node;  // number of ranks by node
  for (const int64_t r : ranks) ++in_node[n.per_node == 0 ? 0 : r / n.per_node];
  const int64_t nodes = int64_t(in_node.size()), each = in_node.begin()->second;
  if (nodes == 1) return on_one_link(n.link, what, each, bytes);
  for (const auto& [node, count] : in_node)
    if (count != each) return on_one_link(n.between, what, int64_t(ranks.size()), bytes);
  const double part = what == Collective::Broadcast ? bytes : bytes / double(each);
  return on_one_link(n.link, what, each, bytes) + on_one_link(n.between, what, nodes, part);
}

double collective_seconds(const Network& n, Collective what, int64_t ranks, double bytes) {
  check_ranks(n, ranks);
  return collective_seconds(n, what, first_ranks(ranks), bytes);
}

double message_seconds(const Network& n, int64_t from, int64_t to, double bytes) {
  const Link& link = n.per_node == 0 || from / n.per_node == to / n.per_node ? n.link : n.between;
  return link.latency + bytes / link.bandwidth;
}

}  // namespace gradus
