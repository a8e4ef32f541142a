// The network between the ranks, and the time of a collective on it: the closed form of a ring, each of whose
// steps takes a latency plus its share of the bytes divided by the bandwidth.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/parallel/comm/comm.h"

namespace gradus {

struct Link {
  double latency = 0;       // seconds per message
  double bandwidth = 1e30;  // bytes per second, each way
};

// Ranks on one link; or, if per_node > 0, nodes of per_node ranks, each rank with a link to other nodes.
struct Network {
  std::string name, source;  // source: where the numbers are published
  Link link;
  int64_t per_node = 0;
  Link between = {};  // link between nodes
};
const std::vector<Network>& published_networks();
const Network& network_called(std::string_view name);  // an error that lists them

// Rejects a number of ranks that does not fill the network's nodes.
void check_ranks(const Network& network, int64_t ranks);

// `bytes`: all that is summed, gathered or sent. Reduce-scatter and all-gather take (N-1) (latency + bytes /
// N / bandwidth), an all-reduce both, a broadcast (N-1) latency + bytes / bandwidth, a barrier as an
// all-reduce of 0 bytes, a split no time. With g ranks in each of several nodes: first within the nodes, with
// all bytes, then between the nodes, with 1/g of them (a broadcast: with all). If the nodes have different
// numbers of ranks: one ring over the links between nodes. `ranks`: those that take part; rank r is in node r
// / per_node.
double collective_seconds(const Network& network, Collective what, const std::vector<int64_t>& ranks,
                          double bytes);
// The same for ranks 0 to ranks - 1, which must fill the nodes.
double collective_seconds(const Network& network, Collective what, int64_t ranks, double bytes);
// The time of a message between two ranks.
double message_seconds(const Network& network, int64_t from, int64_t to, double bytes);

}  // namespace gradus
