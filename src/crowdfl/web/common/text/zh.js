// What all pages say, in Chinese.

export default {
  common: {
    blocked: "本页面不能访问 {place}，因此您的手机无法继续。这不是您的网络问题。请告诉邀请您的人：平台运营方需要在 SP 设置的 `phone_connect` 中加入该地址。",
    kgc: "密钥中心（KGC）分发密钥：在此期间，或者如果它保留了本应销毁的内容，它可以读取一切；在报名截止之前，它与平台一起可以读取每个平均值。",
    language: "语言",
    notKnown: "–",
    notNow: "以后再说",
    nothing: "暂无内容",
  },
  shell: {
    skip: "跳到内容",
    views: "视图",
    table: "以表格显示",
    status: "服务返回状态 {status}",
  },
  state: {
    running: "进行中",
    paused: "已暂停",
    finished: "已完成",
    cancelled: "已取消",
    settled: "已结清",
    open: "开放中",
    closed: "已关闭",
    weighed: "已检查",
    rewarded: "已发报酬",
    aborted: "已中止",
    pending: "待处理",
    confirmed: "已确认",
    rejected: "已拒绝",
    unknown: "未知",
    paid: "已支付",
  },
};
