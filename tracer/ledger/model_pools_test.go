// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strings"
)

// place moves what was allocated in a context on an unknown device.
func (m *model) place(pid uint32, context uint64, device int32) {
	for _, o := range m.objects {
		if o.PID != pid || o.Context != context || o.device != UnknownDevice || o.memory || o.alias || o.Kind.OnHost() || o.Kind == Imported {
			continue
		}
		add := func(sign uint64) {
			t := m.total(o)
			t[0], t[1], t[2], t[3] = t[0]+sign, t[1]+sign*o.Size, t[2]+sign, t[3]+sign*o.Size
		}
		add(^uint64(0))
		o.device = device
		add(1)
		switch p := o.pool; {
		case p == nil || p.fixed:
		case p.handle != 0:
			p.device = device
		default:
			p.objects--
			p.used -= o.Size
			p.reserve -= o.Size
			o.pool = m.poolFor(pid, 0, device)
			if !o.pool.fixed {
				o.pool.device = device
			}
			o.pool.objects++
			o.pool.used += o.Size
			o.pool.reserve = max(o.pool.reserve, o.pool.used)
		}
	}
}

func (m *model) poolFor(pid uint32, handle uint64, device int32) *modelPool {
	if handle == 0 {
		handle = m.selected[fmt.Sprint(pid, " ", device)]
	}
	return m.pool(pid, handle, device, true)
}

func (m *model) pool(pid uint32, handle uint64, device int32, create bool) *modelPool {
	p := find(m.pools, func(p *modelPool) bool {
		return p.pid == pid && p.handle == handle && !p.destroyed && (handle != 0 || p.device == device)
	})
	if p == nil && create {
		p = &modelPool{pid: pid, handle: handle, device: UnknownDevice}
		if handle == 0 {
			p.device = device
		}
		m.pools = append(m.pools, p)
	}
	return p
}

func (m *model) poolOp(e Event) {
	if e.Op == PoolSelect {
		m.selected[fmt.Sprint(e.PID, " ", e.Device)] = e.Handle
		return
	}
	if known := m.pool(e.PID, e.Handle, e.Device, false); known != nil && e.Op == PoolCreate && e.Handle != 0 {
		again := e
		again.Op = PoolDestroy
		m.poolOp(again)
	}
	p := m.pool(e.PID, e.Handle, e.Device, e.Op == PoolCreate || e.Op == PoolThreshold)
	switch {
	case p == nil:
	case e.Op == PoolCreate && e.Device != UnknownDevice:
		p.device, p.fixed = e.Device, true
	case e.Op == PoolThreshold:
		p.threshold = e.Size
	case e.Op == PoolTrim:
		p.reserve = max(p.used, min(p.reserve, e.Size))
	case e.Op == PoolDestroy && e.Handle != 0:
		p.destroyed, p.reserve = true, p.used
		for key, handle := range m.selected {
			if handle == e.Handle && strings.HasPrefix(key, fmt.Sprint(e.PID, " ")) {
				delete(m.selected, key)
			}
		}
	}
}
