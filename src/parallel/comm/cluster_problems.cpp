// Errors of runs in which all ranks wait, or a rank has ended without communication that others began.
#include <algorithm>
#include <sstream>

#include "src/parallel/comm/simulation.h"

namespace gradus {

static std::string in_group(const std::string& name) {
  return name.empty() ? "" : " in group '" + name + "'";
}

std::string Cluster::where_all_wait() const {
  constexpr int64_t kMostListed = 8;
  std::string text;
  int64_t waiting = 0;
  for (int64_t r = 0; r < args.ranks; ++r) {
    const SimRank& rank = *ranks[size_t(r)];
    waiting += !rank.done;
    // Of many ranks, only those that wait are listed.
    if (rank.done ? args.ranks > kMostListed : waiting > kMostListed) continue;
    text += "; rank " + std::to_string(r);
    text += rank.done ? " has ended" : " waits in " + rank.waits_for;
  }
  if (waiting == 0) return "";
  if (args.ranks > kMostListed) text += "; and so on";
  return "deadlock: no rank can go on" + text;
}

// All ranks have ended; finds a collective that not all of them came to.
std::string Cluster::who_was_missed(const Group& group) const {
  if (group.meetings.empty()) return "";
  const Meeting& m = *group.meetings.front();
  const auto who = [&](bool there) {
    const auto found =
        std::find_if(m.offers.begin(), m.offers.end(), [&](const auto& o) { return o.has_value() == there; });
    return size_t(found - m.offers.begin());
  };
  return "rank " + std::to_string(group.members[who(true)]) + " began " + m.offers[who(true)]->text() +
         ", its collective number " + std::to_string(group.first_meeting + 1) + in_group(group.name) +
         "; rank " + std::to_string(group.members[who(false)]) + " has ended without it";
}

std::string Cluster::who_was_not_asked() const {
  for (const auto& [address, box] : mail) {
    if (box.messages.empty()) continue;
    const auto& [group, from, to, tag] = address;
    const Message& m = box.messages.begin()->second;
    std::ostringstream s;
    s << "rank " << from << (tag < 0 ? " sent, in an all_to_all, " : " sent ") << m.numel << " "
      << name_of(m.dtype) << " to rank " << to;
    if (tag > 0) s << ", tag " << tag;
    s << in_group(groups_[group]->name) << "; no rank has received it";
    return s.str();
  }
  return "";
}

}  // namespace gradus
