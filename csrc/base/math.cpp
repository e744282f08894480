#include "base/math.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace edgert::math {
namespace {

constexpr double kRoundingMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
constexpr double kInfinity = __builtin_inf();
constexpr double kNan = __builtin_nan("");

// A value as an unevaluated sum, |low| below half a unit of high.
struct Pair {
  double high, low;
};

double round_to_even(double x) { return (x + kRoundingMagic) - kRoundingMagic; }

Pair two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// Dekker's exact product: both factors are split into halves of 26 bits.
Pair two_product(double a, double b) {
  constexpr double kSplitter = 134217729.0;  // 2^27 + 1
  const double ta = kSplitter * a, tb = kSplitter * b;
  const double a_high = ta - (ta - a), b_high = tb - (tb - b);
  const double a_low = a - a_high, b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

Pair normalised(double high, double low) {
  const double sum = high + low;
  return {sum, low - (sum - high)};
}

double power_of_two(int exponent) {  // -1022..1023
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}

// pi / 2 in pieces of 30 bits, so that up to 2^23 times a piece is exact.
constexpr double kHalfPi1 = 0x1.921fb540p+0;
constexpr double kHalfPi2 = 0x1.10b46118p-30;
constexpr double kHalfPi3 = 0x1.313198a0p-61;
constexpr double kHalfPi4 = 0x1.701b839a25205p-92;

struct Reduced {
  Pair angle;  // within pi / 4 of zero
  int quadrant;
};

Reduced reduce(double x) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  const double n = round_to_even(x * kTwoOverPi);
  Pair r = two_sum(x - n * kHalfPi1, -(n * kHalfPi2));
  const Pair next = two_sum(r.high, -(n * kHalfPi3));
  r = normalised(next.high, next.low + r.low - n * kHalfPi4);
  return {r, static_cast<int>(static_cast<std::int64_t>(n) & 3)};
}

// Taylor series within pi / 4; the correction is the derivative times the low part.
double sin_reduced(Pair r) {
  const double x = r.high, z = x * x;
  double p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return x + (r.low * (1.0 - 0.5 * z) + x * (z * p));
}

double cos_reduced(Pair r) {
  const double x = r.high, z = x * x;
  double p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  const double half = 0.5 * z, first = 1.0 - half;
  return first + (((1.0 - first) - half) + (z * (z * p) - x * r.low));
}

bool in_range(double x) { return x > -1e15 && x < 1e15; }

constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: an integer below 2^20 times it is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// exp(high + low) for a small low.
double exp_pair(Pair x) {
  if (!(x.high == x.high)) return kNan;
  if (x.high > 709.79) return kInfinity;
  if (x.high < -745.2) return 0.0;
  constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
  const double n = round_to_even(x.high * kInverseLn2);
  const Pair r = normalised(x.high - n * kLn2High, x.low - n * kLn2Low);
  double p = 1.0 / 87178291200.0;
  for (const double factorial :
       {6227020800.0, 479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0}) {
    p = p * r.high + 1.0 / factorial;
  }
  const double value = 1.0 + (r.high + (r.low + r.high * r.high * p));
  const int exponent = static_cast<int>(n);
  const int first = exponent / 2;  // in two steps, so that neither factor overflows
  return value * power_of_two(first) * power_of_two(exponent - first);
}

// log of a positive finite x with about 60 bits.
Pair log_pair(double x) {
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  std::uint64_t bits;
  std::memcpy(&bits, &x, 8);
  exponent += static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | (1023ull << 52);
  double m;
  std::memcpy(&m, &bits, 8);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++exponent;
  }
  // s = (m - 1) / (m + 1) as a pair: m - 1 is exact, m + 1 is a pair.
  const double f = m - 1.0;
  const Pair denominator = two_sum(m, 1.0);
  const double s = f / denominator.high;
  const Pair back = two_product(s, denominator.high);
  const double s_low = (((f - back.high) - back.low) - s * denominator.low) / denominator.high;
  const double z = s * s;
  double p = 0.0;
  for (int k = 25; k >= 3; k -= 2) p = (p + 1.0 / k) * z;
  // log m = 2 s + 2 s p; p is below 0.01, so its rounding lies seven bits below that of the sum.
  const Pair product = two_product(2.0 * s, p);
  const Pair first = two_sum(2.0 * s, product.high);
  const double low = first.low + product.low + 2.0 * s_low * (1.0 + p);
  const Pair sum = two_sum(exponent * kLn2High, first.high);
  return normalised(sum.high, sum.low + low + exponent * kLn2Low);
}

}  // namespace

double sin(double x) {
  if (!in_range(x)) return kNan;
  const Reduced r = reduce(x);
  const double value = (r.quadrant & 1) ? cos_reduced(r.angle) : sin_reduced(r.angle);
  return (r.quadrant & 2) ? -value : value;
}

double cos(double x) {
  if (!in_range(x)) return kNan;
  const Reduced r = reduce(x);
  const double value = (r.quadrant & 1) ? sin_reduced(r.angle) : cos_reduced(r.angle);
  return ((r.quadrant + 1) & 2) ? -value : value;
}

double exp(double x) { return exp_pair({x, 0.0}); }

double log(double x) {
  if (!(x >= 0.0)) return kNan;
  if (x == 0.0) return -kInfinity;
  if (x == kInfinity) return kInfinity;
  return log_pair(x).high;
}

double pow(double x, double y) {
  if (!(x > 0.0) || x == kInfinity || !(y == y)) return kNan;
  const Pair l = log_pair(x);
  const Pair product = two_product(l.high, y);
  return exp_pair(normalised(product.high, product.low + l.low * y));
}

}  // namespace edgert::math
