if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # An upgrade restarts the agent; guests whose clients connect again ride that out.
    if [ "$1" -ge 1 ]; then systemctl try-restart parda.service || :; fi
fi
