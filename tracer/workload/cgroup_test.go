// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"testing"
)

const (
	id      = "9e073649debeec6d511391c9ec7627ee67ce3a3fb508b0fa0437a97f8e58ba98"
	outer   = "2403ccfe427f1dc7b6120dccb9ac58c2f8456950380d587a9f33ea7f00dd303d"
	uid     = "019c1fe8-0d92-4aa0-b61c-4df58bdde71c"
	escaped = "019c1fe8_0d92_4aa0_b61c_4df58bdde71c"
	static  = "36b6d6be73b1065af369b3985edafa09"
	slices  = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + escaped + ".slice"
)

func TestPathsOfControlGroups(t *testing.T) {
	for _, c := range []struct {
		name, cgroup string
		want         group
	}{
		{"no container", "0::/user.slice/user-1000.slice/session-3.scope", group{}},
		{"a service", "0::/system.slice/docker.service", group{}},
		{"the root", "0::/", group{}},
		{"Docker, systemd", "0::/system.slice/docker-" + id + ".scope", group{container: id}},
		{"Docker, systemd inside", "0::/system.slice/docker-" + id + ".scope/init.scope", group{container: id}},
		{"Docker, cgroupfs", "0::/docker/" + id, group{container: id}},
		{"Docker, version 1", "12:net_cls,net_prio:/docker/" + id + "\n10:rdma:/\n1:name=systemd:/docker/" + id + "\n0::/system.slice/containerd.service", group{container: id}},
		{"Docker, with its own parent", "0::/training/team-a/" + id, group{container: id}},
		{"Docker, rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + id + ".scope", group{container: "user-1000/" + id}},
		{"Docker in Docker", "0::/docker/" + outer + "/docker/" + id, group{container: id}},
		{"nerdctl", "0::/system.slice/nerdctl-" + id + ".scope", group{container: id}},
		{"ended", "0::/system.slice/docker-" + id + ".scope (deleted)", group{container: id}},
		{"seen from a container", "0::/../docker-" + id + ".scope", group{container: id}},
		{"containerd, systemd", "0::" + slices + "/cri-containerd-" + id + ".scope", group{container: id, pod: uid}},
		{"CRI-O", "0::" + slices + "/crio-" + id + ".scope", group{container: id, pod: uid}},
		{"CRI-O with crun", "0::" + slices + "/crio-" + id + ".scope/container", group{container: id, pod: uid}},
		{"cri-dockerd", "0::" + slices + "/docker-" + id + ".scope", group{container: id, pod: uid}},
		{"guaranteed pod", "0::/kubepods.slice/kubepods-pod" + escaped + ".slice/cri-containerd-" + id + ".scope", group{container: id, pod: uid}},
		{"cgroupfs", "11:blkio:/kubepods/besteffort/pod" + uid + "/" + id, group{container: id, pod: uid}},
		{"cgroupfs, guaranteed", "0::/kubepods/pod" + uid + "/" + id, group{container: id, pod: uid}},
		{"pod of the node", "0::/kubepods/burstable/pod" + static + "/" + id, group{container: id, pod: static}},
		{"two drivers", "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod" + escaped + ".slice:cri-containerd:" + id, group{container: id, pod: uid}},
		{"kind", "0::/docker/" + outer + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + escaped + ".slice/cri-containerd-" + id + ".scope", group{container: id, pod: uid}},
		{"k3s, from its namespace", "0::/../../kubepods-pod" + escaped + ".slice/cri-containerd-" + id + ".scope", group{container: id, pod: uid}},
		{"podman", "0::/machine.slice/libpod-" + id + ".scope/container", group{container: id}},
		{"podman, cgroupfs", "0::/libpod_parent/libpod-" + id, group{container: id}},
		{"podman, rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope/container", group{container: "user-1000/" + id}},
		{"podman, in a pod", "0::/machine.slice/machine-libpod_pod_" + outer + ".slice/libpod-" + id + ".scope/container", group{container: id}},
		{"podman, a pod alone", "0::/machine.slice/machine-libpod_pod_" + outer + ".slice", group{}},
		{"podman, split", "0::/system.slice/llm.service/libpod-payload-" + id, group{container: id}},
		{"LXC", "0::/lxc.payload.trainer/system.slice/ssh.service", group{container: "trainer"}},
		{"Incus, in a project", "0::/lxc.payload.ml_trainer", group{container: "ml_trainer"}},
		{"LXC 3", "4:memory:/lxc.payload/trainer", group{container: "trainer"}},
		{"Proxmox", "0::/lxc/101/ns/user.slice", group{container: "101"}},
		{"LXC's monitor", "0::/lxc.monitor.trainer", group{}},
		{"Docker in LXC", "0::/lxc.payload.trainer/system.slice/docker-" + id + ".scope", group{container: id}},
		{"nspawn", "0::/machine.slice/machine-my\\x2dbox.scope/payload/init.scope", group{container: "my-box"}},
		{"nspawn, a service", "0::/machine.slice/systemd-nspawn@my\\x2dbox.service/payload", group{container: "my-box"}},
		{"a virtual machine", "0::/machine.slice/machine-qemu\\x2d1\\x2dwin.scope/libvirt/emulator", group{}},
		{"ECS", "0::/ecs/" + static + "/" + id, group{container: id}},
		{"Fargate", "0::/ecs/" + static + "/" + static + "-2330567041", group{container: static + "-2330567041"}},
		{"a user's own, named like a container", "0::/user.slice/user-1000.slice/user@1000.service/system.slice/docker-" + id + ".scope", group{container: "user-1000/" + id}},
		{"a user's own, named like a pod's container", "0::/user.slice/user-1000.slice/user@1000.service" + slices + "/cri-containerd-" + id + ".scope", group{container: "user-1000/" + id}},
		{"a user's own, named like a system container", "0::/user.slice/user-1000.slice/user@1000.service/lxc.payload.trainer", group{container: "user-1000/trainer"}},
		{"a user's own, named like root's", "0::/user.slice/user-1000.slice/user@1000.service/user-0.slice/user@0.service/docker-" + id + ".scope", group{container: "user-1000/" + id}},
		{"a user's own, named like a job", "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7/step_batch", group{}},
		{"a user's manager alone", "0::/system.slice/user@1000.service/docker-" + id + ".scope", group{container: "user-1000/" + id}},
		{"another unit of that name", "0::/system.slice/user-tool.slice/docker-" + id + ".scope", group{container: id}},
		{"Slurm, version 2", "0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0", group{job: "1392969"}},
		{"Slurm, named daemon", "0::/system.slice/gpu01_slurmstepd.scope/job_7/step_batch/user/task_special", group{job: "7", unranked: true}},
		{"Slurm, version 1", "10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0\n9:pids:/system.slice/slurmd.service", group{job: "280678", unranked: true}},
		{"Slurm, the step comes later", "11:cpuset:/system.slice\n4:memory:/slurm_gpu01/uid_1/job_5/step_3/task_1", group{job: "5"}},
		{"another program's job", "0::/system.slice/job_5/step_batch", group{}},
		{"Slurm with podman", "0::/system.slice/slurmstepd.scope/job_5/step_0/user/libpod-" + id, group{container: id, job: "5"}},
		{"too short", "0::/docker/" + id[1:], group{}},
		{"too long", "0::/docker/" + id + "0", group{}},
		{"not hexadecimal", "0::/docker/" + id[1:] + "g", group{}},
		{"not a uid", "0::/kubepods/pod" + uid[1:] + "/x", group{}},
		{"a uid with other parts", "0::/kubepods/pod" + "019c1fe80-d92-4aa0-b61c-4df58bdde71c", group{}},
		{"a name that ends in pod", "0::/system.slice/tripod" + uid, group{}},
		{"a unit that ends in pod", "0::/system.slice/my-pod" + uid + ".service", group{}},
		{"not a line", "garbage\n:\n0:\n0::", group{}},
		{"empty", "", group{}},
	} {
		for _, end := range []string{"", "\n"} {
			if got := parseCgroup([]byte(c.cgroup + end)); got != c.want {
				t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
			}
		}
	}
}

func TestUnescape(t *testing.T) {
	for name, want := range map[string]string{
		`a\x2db`: "a-b", `\x2d`: "-", `a\x2`: `a\x2`, `a\xzz`: `a\xzz`, `a\x+1`: `a\x+1`, `\x1b[31m`: "\x1b[31m", "plain": "plain",
	} {
		if got := unescape(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func FuzzCgroup(f *testing.F) {
	for _, path := range []string{"/docker/" + id, slices + "/cri-containerd-" + id + ".scope", "/lxc/a/lxc.payload.b", "/slurm/job_1/step_batch",
		"/machine.slice/machine-a\\x2d\\x00b.scope", "/ecs/" + static + "/" + static + "-1", "/:/::pod" + uid + "::" + id} {
		f.Add([]byte("0::" + path + "\n1:cpu:/\n"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		g := parseCgroup(text)
		if g.pod != "" && !isUID(g.pod) {
			t.Errorf("pod %q", g.pod)
		}
		if g.job != "" && number(g.job) == "" || g.unranked && g.job == "" {
			t.Errorf("job %q, unranked %v", g.job, g.unranked)
		}
		checkClean(t, Parse(text, nil, "", func(string) (string, string) { return string(text), string(text) }))
		if again := parseCgroup([]byte(strings.TrimRight(string(text), "\n"))); again != g {
			t.Errorf("got %+v, without the last line's end %+v", g, again)
		}
	})
}
