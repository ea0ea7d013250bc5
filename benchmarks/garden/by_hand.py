"""The sciences' inner loops in plain parallel Numba, without Tremula: what the figures divide by.

Grids that wrap around have a ring of one cell around them, which is copied from the opposite side
before each pass, as one writes it by hand.
"""

# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, PLR0917 - loops over plain arrays
import math

import numba
import numpy as np

_F = np.float32


@numba.njit
def wrap(field):
    """The ring of a field float32[n + 2, m + 2] from its opposite sides."""
    field[0], field[-1] = field[-2], field[1]
    field[:, 0], field[:, -1] = field[:, -2], field[:, 1]


@numba.njit
def water_by_hand(u, v, p, old, fluxes, n_steps, dt, coriolis, blend):
    """Steps of shallow water; the first is Euler's. `old` are u, v and p of the step before."""
    across, down, spin, head = fluxes
    u_old, v_old, p_old = old
    u_old[:], v_old[:], p_old[:] = u, v, p
    for step in range(n_steps):
        wrap(u)
        wrap(v)
        wrap(p)
        _fluxes(u, v, p, across, down, spin, head, coriolis)
        wrap(across)
        wrap(down)
        wrap(spin)
        wrap(head)
        leap, share = (dt, _F(0)) if step == 0 else (_F(2) * dt, blend)
        _update(u, v, p, u_old, v_old, p_old, across, down, spin, head, leap, share)


@numba.njit(parallel=True)
def _fluxes(u, v, p, across, down, spin, head, coriolis):
    half, quarter, four = _F(0.5), _F(0.25), _F(4)
    n, m = u.shape
    for i in numba.prange(1, n - 1):
        for j in range(1, m - 1):
            here, left, above = p[i, j], p[i, j - 1], p[i - 1, j]
            across[i, j] = half * (here + left) * u[i, j]
            down[i, j] = half * (here + above) * v[i, j]
            turn = coriolis + v[i, j] - v[i, j - 1] - u[i, j] + u[i - 1, j]
            spin[i, j] = four * turn / (here + left + above + p[i - 1, j - 1])
            squares = u[i, j + 1] * u[i, j + 1] + u[i, j] * u[i, j]
            head[i, j] = here + quarter * (squares + v[i + 1, j] * v[i + 1, j] + v[i, j] * v[i, j])


@numba.njit(parallel=True)
def _update(u, v, p, u_old, v_old, p_old, across, down, spin, head, leap, share):
    eighth, keep = _F(0.125), _F(1) - _F(2) * share
    n, m = u.shape
    for i in numba.prange(1, n - 1):
        for j in range(1, m - 1):
            downs = down[i + 1, j] + down[i + 1, j - 1] + down[i, j - 1] + down[i, j]
            turned = eighth * (spin[i + 1, j] + spin[i, j]) * downs
            u_new = u_old[i, j] + leap * (turned - head[i, j] + head[i, j - 1])
            acrosses = across[i, j + 1] + across[i, j] + across[i - 1, j] + across[i - 1, j + 1]
            turned = eighth * (spin[i, j + 1] + spin[i, j]) * acrosses
            v_new = v_old[i, j] - leap * (turned + head[i, j] - head[i - 1, j])
            outflow = across[i, j + 1] - across[i, j] + down[i + 1, j] - down[i, j]
            p_new = p_old[i, j] - leap * outflow
            u_old[i, j] = keep * u[i, j] + share * (u_new + u_old[i, j])
            v_old[i, j] = keep * v[i, j] + share * (v_new + v_old[i, j])
            p_old[i, j] = keep * p[i, j] + share * (p_new + p_old[i, j])
            u[i, j], v[i, j], p[i, j] = u_new, v_new, p_new


@numba.njit
def fluid_by_hand(a, b, solid, n_pairs, omega, force):
    """Pairs of lattice Boltzmann steps on populations float32[9, n + 2, m + 2], from a to a."""
    for _ in range(n_pairs):
        _collide(a, b, solid, omega, force)
        _collide(b, a, solid, omega, force)


@numba.njit(parallel=True)
def _collide(f, out, solid, omega, force):
    one, three, half, w0, w1, w5 = _F(1), _F(3), _F(0.5), _F(4 / 9), _F(1 / 9), _F(1 / 36)
    for k in range(9):
        wrap(f[k])
    keep, push1, push5 = one - omega, three * w1 * force, three * w5 * force
    n, m = solid.shape
    for i in numba.prange(1, n + 1):
        for j in range(1, m + 1):
            f0, f1, f2 = f[0, i, j], f[1, i, j - 1], f[2, i - 1, j]
            f3, f4, f5 = f[3, i, j + 1], f[4, i + 1, j], f[5, i - 1, j - 1]
            f6, f7, f8 = f[6, i - 1, j + 1], f[7, i + 1, j + 1], f[8, i + 1, j - 1]
            mass = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
            x = (f1 + f5 + f8 - f3 - f6 - f7) / mass
            y = (f2 + f5 + f6 - f4 - f7 - f8) / mass
            share = omega * mass
            rest = one - _F(1.5) * (x * x + y * y)
            x3, y3 = three * x, three * y
            xx, yy = _F(4.5) * x * x, _F(4.5) * y * y
            s, d = x3 + y3, x3 - y3
            ss, dd = half * s * s, half * d * d
            share1, share5 = share * w1, share * w5
            if solid[i - 1, j - 1] > half:
                f1, f3 = f3, f1
                f2, f4 = f4, f2
                f5, f7 = f7, f5
                f6, f8 = f8, f6
                out[0, i, j], out[1, i, j], out[2, i, j] = f0, f1, f2
                out[3, i, j], out[4, i, j], out[5, i, j] = f3, f4, f5
                out[6, i, j], out[7, i, j], out[8, i, j] = f6, f7, f8
            else:
                out[0, i, j] = keep * f0 + share * w0 * rest
                out[1, i, j] = keep * f1 + share1 * (rest + x3 + xx) + mass * push1
                out[3, i, j] = keep * f3 + share1 * (rest - x3 + xx) - mass * push1
                out[2, i, j] = keep * f2 + share1 * (rest + y3 + yy)
                out[4, i, j] = keep * f4 + share1 * (rest - y3 + yy)
                out[5, i, j] = keep * f5 + share5 * (rest + s + ss) + mass * push5
                out[7, i, j] = keep * f7 + share5 * (rest - s + ss) - mass * push5
                out[8, i, j] = keep * f8 + share5 * (rest + d + dd) + mass * push5
                out[6, i, j] = keep * f6 + share5 * (rest - d + dd) - mass * push5


@numba.njit(parallel=True)
def trees_by_hand(terms, sign, is_american, n_steps, prices):
    """Binomial trees, an option per iteration."""
    for o in numba.prange(len(terms)):
        n = n_steps[o]
        spot, strike, sign_o = terms[o, 0], terms[o, 1], _F(sign[o])
        dt = terms[o, 4] / _F(n)
        step = terms[o, 3] * _F(math.sqrt(dt))
        up, growth = _F(math.exp(step)), _F(math.exp(terms[o, 2] * dt))
        chance = (growth - _F(1) / up) / (up - _F(1) / up)
        rise, fall = chance / growth, (_F(1) - chance) / growth
        values, even, odd = np.empty(n + 1, _F), np.empty(n + 1, _F), np.empty(n, _F)
        for j in range(n + 1):
            even[j] = sign_o * (spot * _F(math.exp(_F(2 * j - n) * step)) - strike)
            values[j] = max(even[j], _F(0))
        for j in range(n):
            odd[j] = sign_o * (spot * _F(math.exp(_F(2 * j - n + 1) * step)) - strike)
        for back in range(n):
            level = n - 1 - back
            if not is_american[o]:
                for j in range(level + 1):
                    values[j] = rise * values[j + 1] + fall * values[j]
            else:
                paid = even[(back + 1) // 2 :] if back % 2 else odd[back // 2 :]
                for j in range(level + 1):
                    values[j] = max(rise * values[j + 1] + fall * values[j], paid[j])
        prices[o] = values[0]


@numba.njit
def _draw(state):
    """64 bits of xoroshiro128aox, the generator of the hardware; state: uint64[2]."""
    a, b = state[0], state[1]
    mixed, both = a ^ b, a & b
    state[0] = ((a << np.uint64(55)) | (a >> np.uint64(9))) ^ mixed ^ (mixed << np.uint64(14))
    state[1] = (mixed << np.uint64(36)) | (mixed >> np.uint64(28))
    once = (both << np.uint64(1)) | (both >> np.uint64(63))
    twice = (both << np.uint64(2)) | (both >> np.uint64(62))
    return mixed ^ (once | twice)


@numba.njit
def _normal(state):
    """The sum of twelve uniform terms of 16 bits."""
    total = np.int64(0)
    for _ in range(3):
        bits = _draw(state)
        for shift in (0, 16, 32, 48):
            total += np.int64((bits >> np.uint64(shift)) & np.uint64(0xFFFF))
    return _F((_F(total) - _F(6 * 65535)) * _F(2.0**-16))


@numba.njit(parallel=True)
def paths_by_hand(terms, states, sums, n_paths, n_dates):
    """Sums over paths of an Asian and a European call with their Greeks, a stream per row."""
    spot, strike, rate, volatility = terms[0], terms[1], terms[2], terms[3]
    dt, share, zero = terms[4] / _F(n_dates), _F(1) / _F(n_dates), _F(0)
    step, drift = _F(math.sqrt(dt)), (rate - _F(0.5) * volatility * volatility) * dt
    discount = _F(math.exp(-rate * terms[4]))
    for row in numba.prange(len(sums)):
        state, totals = states[row], np.zeros(11, _F)
        for _ in range(n_paths):
            brownian, price, total, logs, slope, last_slope = zero, spot, zero, zero, zero, zero
            for date in range(n_dates):
                brownian += step * _normal(state)
                time = _F(date + 1)
                exponent = drift * time + volatility * brownian
                price = spot * _F(math.exp(exponent))
                last_slope = price * (brownian - volatility * dt * time)
                total += price
                logs += exponent
                slope += last_slope
            mean = total * share
            paid = discount * max(mean - strike, zero)
            counts = discount if mean > strike else zero
            middle = discount * max(spot * _F(math.exp(logs * share)) - strike, zero)
            last = discount * max(price - strike, zero)
            last_counts = discount if price > strike else zero
            totals[0] += paid
            totals[1] += paid * paid
            totals[2] += counts * mean / spot
            totals[3] += counts * slope * share
            totals[4] += middle
            totals[5] += middle * middle
            totals[6] += paid * middle
            totals[7] += last
            totals[8] += last * last
            totals[9] += last_counts * price / spot
            totals[10] += last_counts * last_slope
        sums[row] = totals
