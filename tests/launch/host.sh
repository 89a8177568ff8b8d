# usage: host.sh NAME ADDRESS HOSTS SSHD. One host, until it is killed, in namespaces of its own; the working folder has ssh,
# sshd_config and HOSTS, its /etc/hosts, and gets up.NAME. SSHD no: without an sshd.
set -e
hostname "$1"
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
mkdir -p /run/sshd /root/.ssh
mount --bind ssh /root/.ssh
mount --bind "$3" /etc/hosts
ip link set lo up
until ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
ip address add "$2/24" dev eth0
ip link set eth0 up
[ "$4" = no ] || /usr/sbin/sshd -f sshd_config
: > "up.$1"
while :; do sleep 1000; done  # the same process for the whole of a test, as tests count what is left
