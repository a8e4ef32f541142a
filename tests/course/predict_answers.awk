# predict_answers.awk: a file of questions (predict_NN), filled in by the formulas of the lessons' pages, from the
# numbers in its own text. For the self-tests.
function after(word,    rest) {  # the number that follows a word of the text
  rest = substr(text, index(text, word) + length(word)); return rest + 0
}
function before(word,    n, part) { n = split(substr(text, 1, index(text, word) - 1), part, /[ -]/); return part[n] + 0 }
function answers() {
  if (id == "01.2") {
    n = after("n = "); b = after("blocks of ")
    a["bytes_B"] = 4 * n ^ 3 / b; a["bytes_C"] = 2 * a["bytes_B"]; a["intensity"] = b / 6
  } else if (id == "02.4") {
    d = before(" linear"); w = after(": 2 -> "); R = before(" points")
    a["forward"] = 2 * R * (4 * w + (d - 2) * w * w); a["backward"] = 2 * a["forward"] - 4 * R * w
  } else if (id == "02.1") {
    x = after("a = "); w = after("and w = "); s = after("c = ")
    a["db"] = 2 * (1 + s) * x * w; a["da"] = w * a["db"]; a["dw"] = x * a["db"]
  } else if (id == "03.5") {
    V = after("vocabulary of "); T = before(" tokens"); B = before(" sequences"); gpt()
    a["weights"] = a["gradients"] = 4 * N; a["optimizer"] = 8 * N
    a["activations"] = 4 * B * T * (L * (16 * C + H * T + 4) + 2 * C + V + 3)
  } else if (id == "04.4") {
    V = 50257; T = 1024; B = after("--batch="); S = after("--seq="); gpt()
    a["weight"] = 2 * N; a["master"] = a["gradient"] = 4 * N; a["optimizer"] = 8 * N
    a["gelu"] = 8 * B * S * C; a["gelu_batch_doubled"] = a["gelu_seq_doubled"] = 16 * B * S * C
    a["probabilities"] = 2 * B * H * S * S; a["probabilities_seq_doubled"] = 8 * B * H * S * S
    a["moment_batch_doubled"] = 4 * V * C
  } else if (id == "05.5") {
    L = before(" layers"); C = before(" channels"); H = before(" heads"); B = before(" texts")
    t = a["hidden_T"] = int(262144 / (B * C)); p = a["probabilities_T"] = int(sqrt(262144 / (B * H)))
    both = p < t ? p : t; a["large_later"] = 0
    two = int(524288 / (B * C * both)) == 2
    a["small_later"] = (two ? 3 : 2.5) * L + 1; a["third"] = two ? both : t
  } else if (id == "05.1") {
    M = 2 ^ 20; x = after("allocate b, "); y = after("allocate c, "); z = after("allocate d, ")
    a["reserved"] = (22 + (y <= 20 - x ? 0 : y + y % 2)) * M
    hole = y > 20 - x ? 20 : 20 - x - y >= z && 20 - x - y < x ? 20 - x - y : x
    a["allocated"] = after("allocate a, ") * 1024 + (y > 20 - x ? y + y % 2 : 20 - x - y <= 1 ? 20 - x : y) * M + \
      (hole - z <= 1 ? hole : z) * M + 512 * int((after("allocate e, ") + 511) / 512)
  } else if (id == "06.1") {
    m = after("g1 = "); w = after("w = ") - m / 2; q = after("g2 = ") + m / 2
    a["w2_nesterov"] = after("w = ") - (m + m / 2) / 2 - (after("g2 = ") + q / 2) / 2
    a["m3"] = after("g3 = ") + q / 2; a["w3"] = w - q / 2 - a["m3"] / 2
  } else if (id == "06.6") {
    V = after("vocabulary of "); T = after("context of "); gpt(); blocks = 12 * L * C * C
    a["momentum"] = 4 * N; a["adamw"] = 8 * N; a["muon"] = 8 * N - 4 * blocks; a["products"] = 90 * C ^ 3
    a["adafactor"] = 4 * (V + T + 2 * C + 29 * L * C + 2 * C)
  } else if (id == "07.4") {
    V = after("vocabulary of "); T = after("context of "); gpt(); B = after("batch of "); k = after("is divided into ")
    a["saved_whole"] = 4 * B * T * (L * (16 * C + H * T + 4) + 2 * C + V + 3); a["saved"] = a["saved_whole"] / k
    a["gradients"] = 4 * N; a["updates"] = 2; x = after("micro-batch of "); y = after("a second one of ")
    a["mean"] = (x * after("has the mean loss ") + y * before(". What is the mean")) / (x + y)
  } else if (id == "08.1") {
    x = after("into segments of "); y = after(", then "); rest = substr(text, index(text, ", then ") + 7)
    z = substr(rest, index(rest, ", then ") + 7) + 0; m = x + 1
    if (y + 2 > m) m = y + 2
    if (z + 3 > m) m = z + 3
    a["alive"] = m; a["alive_from_start"] = 4
  } else if (id == "08.4") {
    V = after("vocabulary of "); T = after("context of "); gpt(); B = after("batch of "); k = after("with segments of ")
    tail = 4 * B * T * (2 * C + V + 3); a["kept"] = tail + 4 * B * T * L * (16 * C + H * T + 4)
    a["kept_each"] = tail + 4 * B * T * C * L; a["kept_every"] = tail + 4 * B * T * C * L / k
    a["gelus_each"] = 2 * L; a["gelus_start"] = L + L * (L + 1) / 2
  } else if (id == "09.6") {
    V = after("vocabulary of "); T = after("context of "); gpt(); a["mixed"] = 18 * N; a["half"] = 8 * N
    x = after("bf16 number larger than "); a["bf16"] = x + x / 128; a["fp16"] = x + x / 1024
    k = after("is doubled after "); x = int(after("A run makes ") / k) + int(after("with an overflow, then ") / k)
    a["scale"] = after("scale starts at ") * 2 ^ (x - after("good updates, then "))
  } else if (id == "10.6") {
    n = before(" rows") * before(" columns"); x = 4 * n / after("in blocks of ")
    a["bytes8"] = n + x; a["bytes4"] = n / 2 + x
    a["code"] = 127 + int(127 * after("give the number ") / after("in a block is -") + 0.5)
    x = after("have the codes "); a["byte"] = 16 * x + after("have the codes " x " and ")
  } else if (id == "11.4") {
    n = before(" rows") * before(" columns"); x = int((n + 255) / 256)
    a["matrix"] = 2 * n + 8 * x; a["vector"] = 8 * before(" elements")
    a["code"] = int(255 * before(" hundred-thousandths") / (100 * before(" thousandths")) + 0.5)
  } else if (id == "12.5") {
    a["trainable"] = after("Its rank is ") * 5 * before(" channels"); a["bytes"] = 12 * a["trainable"]
    x = 128 * after("A matrix ("); a["coded"] = x / 2 + x / 64 + 4 * x / 16384
  } else if (id == "13.4") {
    V = 50; T = 16; gpt(); R = after("matrices ("); a["calls"] = 19 * L; a["bytes"] = 4 * N
    x = 6 * after("roofs meet at ") / R; a["stretched"] = x > 1 ? x : 1
  } else if (id == "14.4") {
    x = after("makes a batch in ") / before(" workers, and each has") - after("A step computes for "); a["waiting"] = x > 0 ? x : 0
    a["different"] = after("An epoch has ") / before(" workers of a rank")
    a["bits"] = log(after("gives each of its ")) / log(2) / before(" bytes on average")
  } else if (id == "15.3") {
    H = before(" query heads"); k = before(" KV heads"); x = after("head size D = ")
    a["saved"] = after("attention_flash with B = ") * after("sequences of T = ") * (4 * (H + k) * x + 4 * H)
    T = after("on one head with T = "); x = after(" and D = "); a["program"] = T * x * (1 + 2 * T / after("in groups of "))
    T = after("with D = 64 and T = "); a["kernel"] = 4 * 64 * (T + T * (T / 64 + 1))
  } else if (id == "16.3") {
    a["moved"] = 12 * after("on tensors of ")
    a["flops"] = 6 * after("linear_cross_entropy of N = ") * after("rows with C = ") * after("channels and V = ")
    a["chains"] = 2 * after("A GPT with ")
  } else if (id == "17.3") {
    R = before(" ranks"); k = before(" weights of"); n = after("weights of (") ^ 2
    x = before(" microseconds and"); y = 4000 * n / before(" GB (10")  # of one weight, on the link: 1e-9 s
    a["sent"] = 2 * k * n * (R - 1) / R; a["messages"] = 2 * (R - 1); a["messages_each"] = 2 * k * (R - 1)
    a["time"] = 2 * (R - 1) * (x + k * y / R / 1e6); a["time_each"] = 2 * k * (R - 1) * (x + y / R / 1e6)
  } else if (id == "18.3") {
    V = after("vocabulary of "); T = after("context of "); gpt(); R = before(" ranks"); k = before(" micro-batches")
    a["bytes_1"] = 4 * N + 12 * N / R; a["bytes_2"] = 2 * N + 14 * N / R; a["bytes_3"] = 16 * N / R
    x = N * (R - 1) / R; a["sent_1"] = 2 * x; a["sent_2"] = (k + 1) * x; a["sent_3"] = 3 * k * x
    a["gathered"] = 2 * (V * C + T * C + 2 * C + 12 * C * C + 13 * C)
  } else if (id == "19.5") {
    h = after("layer has "); heads = before(" heads"); b = after("a batch of "); s = after("sequences of ")
    t = before(" ranks divide it"); x = s * b * h; p = 2 * heads * s * s * b / t
    a["bytes"] = x * (8 + 24 / t) + p + 16 * s * b; a["bytes_tokens"] = (32 * x + 16 * s * b) / t + p
    a["sent"] = 8 * x * (t - 1) / t; a["sent_tokens"] = 10 * x * (t - 1) / t
    c = after("divide a sequence of ") / after("In your ring ") / 2
    a["pairs_0"] = c * (c + 1) + c * c; a["pairs_1"] = 2 * c * c
  } else if (id == "20.5") {
    p = after("pipeline has "); m = after("ranks and "); v = before(" chunks per rank"); r = after("on rank ")
    a["bubble"] = 100 * (p - 1) / (m + p - 1); a["bubble_interleaved"] = 100 * (p - 1) / (m * v + p - 1)
    a["gpipe"] = m; a["one_f_one_b"] = p - r < m ? p - r : m
    x = 2 * (p - r - 1) + (v - 1) * p + 1; a["interleaved"] = x < m * v ? x : m * v
    a["messages"] = 2 * m * (p * v - 1)
  } else if (id == "21.5") {
    E = after("Your block has "); h = after("MLPs of width "); C = before(" channels"); k = after("is routed to ")
    T = after("A sequence has "); x = after("capacity factor is ") * k * T / E; R = after("parallelism on ")
    p = x == int(x) ? x : int(x) + 1; p = p < T ? p : T; n = 3 * E * C * h; B = after("ranks together read ")
    a["places"] = p; a["weights"] = n; a["flops"] = 2 * p * n; a["bytes"] = 4 * n / R
    a["sent"] = 4 * E * (B / R) * p * C * (R - 1) / R
  } else if (id == "22.4") {
    L = after("--model=gpt-"); C = after("--model=gpt-" L "x"); r = after("--lora="); R = after("--ranks=")
    N = 256 * C + 32 * C + L * (12 * C * C + 13 * C) + 2 * C
    a["parameters"] = N; a["mixed"] = 18 * N; a["adapters"] = L * r * 4 * C; a["states"] = 12 * a["adapters"]; a["rank"] = 8 * N / R
  }
}
function gpt() {
  L = before(" layers"); C = before(" channels"); H = before(" heads")
  N = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
}
{ line[NR] = $0 }
/^#/ { sub(/^# ?/, ""); text = text " " $0 }
/ =$/ { asked[$1] }
END {
  for (id in asked) answers()
  for (i = 1; i <= NR; i++) {
    split(line[i], part, " ")
    if (line[i] ~ / =$/) printf "%s %s\n", line[i], sprintf("%.3f", a[part[2]])
    else print line[i]
  }
}
